"""Parsers of attribute values: any accepted spelling in, the one stored form out, ValueError else."""

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


def integer(least: int | None = None) -> Callable[[Any], int]:
    """An int (or anything with ``__index__``, never a float), at least ``least``."""

    def parse(value: Any) -> int:
        if isinstance(value, bool):
            raise ValueError("expected an integer, got a bool")
        n = operator.index(value)
        if least is not None and n < least:
            raise ValueError(f"must be at least {least}")
        return n

    return parse


def nonzero(value: Any) -> int:
    """An int other than 0."""
    n = integer()(value)
    if n == 0:
        raise ValueError("must not be 0")
    return n


def optional(inner: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """None, or what ``inner`` takes."""
    return lambda value: None if value is None else inner(value)


def real(value: Any) -> float:
    """A number as a float; NaN is refused."""
    if isinstance(value, (str, bool)):
        raise ValueError("expected a number")
    x = float(value)
    if math.isnan(x):
        raise ValueError("must not be NaN")
    return x


def real_between(least: float, most: float = math.inf) -> Callable[[Any], float]:
    """A finite number in ``[least, most]``."""

    def parse(value: Any) -> float:
        x = real(value)
        if math.isinf(x) or not least <= x <= most:
            raise ValueError(f"must be finite and in [{least:g}, {most:g}]")
        return x

    return parse


def positive(value: Any) -> float:
    """A finite number above zero."""
    x = real(value)
    if math.isinf(x) or x <= 0:
        raise ValueError("must be finite and above 0")
    return x


def boolean(value: Any) -> bool:
    """True or False, nothing that merely looks like it."""
    if not isinstance(value, bool):
        raise ValueError("expected True or False")
    return value


def choice(*names: str) -> Callable[[Any], str]:
    """One of a few words."""

    def parse(value: Any) -> str:
        if value not in names:
            raise ValueError(f"expected one of {', '.join(names)}")
        return str(value)

    return parse


def ints(least: int | None = None) -> Callable[[Any], tuple[int, ...]]:
    """A sequence of integers of any length."""
    one = integer(least)
    return lambda value: tuple(one(v) for v in value)


#: Names of the axes of a window, by how many there are.
AXES = {1: ("length",), 2: ("height", "width"), 3: ("depth", "height", "width")}
STARTS = {1: ("start",), 2: ("top", "left"), 3: ("front", "top", "left")}
STOPS = {1: ("stop",), 2: ("bottom", "right"), 3: ("back", "bottom", "right")}


def each_of(one: Callable[[Any], T], axes: int) -> Callable[[Any], tuple[T, ...]]:
    """One value for all axes, or one for each, ``(height, width)`` if two, each as ``one`` takes it."""
    names = ", ".join(AXES[axes])

    def parse(value: Any) -> tuple[T, ...]:
        if not isinstance(value, Sequence) or isinstance(value, str):
            return (one(value),) * axes
        if len(value) != axes:
            raise ValueError(f"expected one value or ({names})")
        return tuple(map(one, value))

    return parse


def each(axes: int, least: int = 1) -> Callable[[Any], tuple[int, ...]]:
    """One integer for all axes, or one for each."""
    return each_of(integer(least), axes)


def pads(axes: int) -> Callable[[Any], tuple[int, ...]]:
    """Padding as it is stored, ONNX's order: ``(top, left, bottom, right)`` for two axes.

    One integer stands for all sides, one integer per axis for both sides of that axis.
    """
    one = integer(0)
    names = f"({', '.join(AXES[axes])}) or ({', '.join((*STARTS[axes], *STOPS[axes]))})"

    def parse(value: Any) -> tuple[int, ...]:
        if not isinstance(value, Sequence):
            value = (value,) * axes
        if len(value) == axes:
            value = (*value, *value)
        if len(value) != 2 * axes:
            raise ValueError(f"expected one integer, {names}")
        return tuple(map(one, value))

    return parse
