"""Which networks the tests run: a few always, the others with the mark `networks`."""

from collections.abc import Iterable
from typing import Any

import pytest

ALWAYS = ("resnet18", "mobilenet_v2", "squeezenet1_1")


def networks(names: Iterable[Any], always: tuple[str, ...] = ALWAYS) -> list[Any]:
    """Parameters for ``pytest.mark.parametrize``: names, or tuples that begin with one."""
    return [
        pytest.param(*given, id=given[0], marks=[] if given[0] in always else pytest.mark.networks)
        for given in ((name,) if isinstance(name, str) else tuple(name) for name in names)
    ]
