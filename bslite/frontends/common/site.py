"""One operation of the source model at its place: what its builder appends layers through."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from bslite.frontends.common.values import Dims


class Site(ABC):
    """What is common to the sites of all frontends, so that builders can be."""

    @abstractmethod
    def emit(
        self, op: str, *inputs: Any, inner: Dims | None = None, params: Mapping[str, Any] | None = None,
        **attrs: Any,
    ) -> Any:  # fmt: skip
        """Append a layer: the one that makes the operation's own result, or, where its shape ``inner`` is
        given, one on the way to it.
        """
