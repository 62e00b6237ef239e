"""Whether what a description is made of is of the right kind."""

import operator
from collections.abc import Iterable
from typing import Any

from bslite.errors import InputError, SpecError
from bslite.ops import Shape


def items(value: Any, what: str) -> tuple[Any, ...]:
    """A sequence as a tuple. SpecError for what is none, and for a text, whose letters nobody means."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise SpecError(f"{what}: {value!r:.200}, expected a tuple")
    return tuple(value)


def check_kind(value: Any, kind: type, what: str) -> None:
    """SpecError if ``value`` is of another kind, which no file could hold."""
    if not isinstance(value, kind):
        raise SpecError(f"{what} is {value!r:.200}, expected {kind.__name__}")


def shapes_of(caller: str, shapes: Any) -> list[Shape] | None:
    """Input shapes as tuples of integers. InputError if they are none."""
    if shapes is None:
        return None
    try:
        return [tuple(operator.index(d) for d in shape) for shape in shapes]
    except TypeError:
        raise InputError(
            f"{caller}(): shapes is {shapes!r:.200}, expected the shape of each input, as [(1, 3), (1, 5)]"
        ) from None
