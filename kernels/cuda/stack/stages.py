"""What a stack of layers is made of, as text: the compile-time constant of the kernel in stack.py.

Stages are separated by spaces, ``name:numbers``:

* ``max:R,S,sh,sw,top,left,bottom,right``, ``avg:...,divisor``, ``depthwise:...,biased``: windows of R x S
  elements, sh rows and sw columns apart, that reach so far beyond the image on each side. A divisor of 0
  is the number of elements inside the image. A depthwise filter has a bias or not.
* ``affine``: times a number per channel, plus another.
* ``with:NAME``, ``by:NAME``: a function of two values (`cells.FLOATS`), of the running one and one of a
  tensor from outside, or the other way round.
* any function of functions.py, with its two parameters: ``relu``, ``clamp:0.0,6.0``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

WINDOWS = ("max", "avg", "depthwise")


@dataclass(frozen=True)
class Window:
    """A window that moves over the image; see the module."""

    kind: str
    rows: int
    cols: int
    row_step: int
    col_step: int
    top: int
    left: int
    bottom: int
    right: int
    last: int = 0  # divisor, or whether there is a bias


@dataclass(frozen=True)
class Pointwise:
    """A stage that works on one element."""

    name: str
    numbers: tuple[float, ...] = ()


@dataclass
class Level:
    """The values between two windows: what makes them, and what is done to each element then."""

    window: Window | None  # None: they are read from memory
    chain: list[Pointwise] = field(default_factory=list)


def levels_of(stages: str) -> list[Level]:
    """The stack's levels, what it reads first."""
    levels = [Level(None)]
    for word in stages.split():
        name, _, rest = word.partition(":")
        if name in WINDOWS:
            levels.append(Level(Window(name, *map(int, rest.split(",")))))
        elif name in ("with", "by"):
            levels[-1].chain.append(Pointwise(f"{name}:{rest}"))
        else:
            numbers = tuple(map(float, rest.split(","))) if rest else ()
            levels[-1].chain.append(Pointwise(name, numbers))
    return levels


def columns_of(levels: list[Level], columns: int) -> list[int]:
    """Columns of each level that ``columns`` of the last one need."""
    counts = [columns]
    for level in reversed(levels[1:]):
        assert level.window is not None
        counts.append((counts[-1] - 1) * level.window.col_step + level.window.cols)
    return counts[::-1]


def inside_of(levels: list[Level], columns: int) -> list[tuple[int, int]]:
    """Of the columns of each level, the first and the last that are inside the image wherever the last
    level's are; what is before or after may be beyond its edge.
    """
    spans = [(0, columns - 1)]
    for level in reversed(levels[1:]):
        w = level.window
        assert w is not None
        first, last = spans[-1]
        spans.append((first * w.col_step + w.left, last * w.col_step + w.cols - 1 - w.right))
    return spans[::-1]
