"""The record of a stack's launch, and the text that lists its stages, which is compiled in.

Stages are separated by spaces, ``name:numbers``:

* ``max:R,S,sh,sw,top,left,bottom,right``, ``avg:...,divisor``, ``depthwise:...,biased``: a `Window`.
* ``affine``: times one number per channel, plus another.
* ``with:NAME``, ``by:NAME``: a function of the running value and a value of a tensor from outside, in this
  order or the reverse.
* any function of one value, with its two parameters: ``relu``, ``clamp:0.0,6.0``.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from bslite.kernels.contracts.launch import F4, I4, I8, LaunchRecord, LaunchVariant
from bslite.kernels.contracts.record import Frozen

WINDOWS = ("max", "avg", "depthwise")


class Window(NamedTuple):
    """A window of ``kernel`` rows and columns that moves over the image by ``stride``.

    The first windows begin ``before`` the image (above, left), the last ones reach ``beyond`` it (below,
    right). ``last``: the divisor of an average, 0 for the count of elements inside; or whether a filter has a
    bias.
    """

    kind: str
    kernel: tuple[int, int]
    stride: tuple[int, int]
    before: tuple[int, int]
    beyond: tuple[int, int]
    last: int = 0

    @property
    def rows(self) -> int:
        """The rows of the window."""
        return self.kernel[0]

    @property
    def cols(self) -> int:
        """The columns of the window."""
        return self.kernel[1]

    @property
    def row_step(self) -> int:
        """The rows from one window to the next."""
        return self.stride[0]

    @property
    def col_step(self) -> int:
        """The columns from one window to the next."""
        return self.stride[1]

    @property
    def top(self) -> int:
        """The rows above the image."""
        return self.before[0]

    @property
    def left(self) -> int:
        """The columns to the left of the image."""
        return self.before[1]

    @property
    def right(self) -> int:
        """The columns to the right of the image."""
        return self.beyond[1]

    @property
    def word(self) -> str:
        """The window as a word of the variant's text."""
        numbers = (*self.kernel, *self.stride, *self.before, *self.beyond)
        tail = () if self.kind == "max" else (self.last,)
        return f"{self.kind}:{','.join(map(str, (*numbers, *tail)))}"

    @classmethod
    def of(cls, kind: str, numbers: str) -> "Window":
        """Return the window of a word."""
        r, s, sh, sw, top, left, bottom, right, *tail = map(int, numbers.split(","))
        return cls(kind, (r, s), (sh, sw), (top, left), (bottom, right), *tail)


class Pointwise(Frozen):
    """A stage that works on one element."""

    name: str
    numbers: tuple[float, ...] = ()


@dataclass
class Level:
    """The values between two windows: the window that yields them, then the functions of each element."""

    window: Window | None  # None: values are read from memory
    chain: list[Pointwise] = field(default_factory=list)


def levels_of(stages: str) -> list[Level]:
    """Return the stack's levels; the first is its input."""
    levels = [Level(None)]
    for word in stages.split():
        name, _, rest = word.partition(":")
        if name in WINDOWS:
            levels.append(Level(Window.of(name, rest)))
        elif name in ("with", "by"):
            levels[-1].chain.append(Pointwise(f"{name}:{rest}"))
        else:
            numbers = tuple(map(float, rest.split(","))) if rest else ()
            levels[-1].chain.append(Pointwise(name, numbers))
    return levels


def by_bits(level: Level, window: Window, first: bool) -> bool:
    """Return whether the window's maxima of this level's values may be taken as those of integers, three at a
    time, and zero for a fourth: a ReLU is the level's last function. ``first``: its values are the input's.

    Numbers without a sign are in the order of their bits; those of a negative number are a negative integer,
    which loses against zero. So do those of a NaN with a sign: windows and batch norms make none (a GPU's
    arithmetic has one NaN), a caller may have some, and a function of two values may hand one on.
    """
    *before, final = [stage.name for stage in level.chain] or [""]
    made = before[-1] == "affine" if before else not first
    return window.kind == "max" and window.cols > 1 and final == "relu" and made


class StackVariant(LaunchVariant):
    """A thread takes ``columns`` columns of the result, ``turn`` rows in a turn of its loop. ``steps``: x_col
    and y_col, 0 for what the record says. ``threes``: three integers' maximum is one instruction.
    """

    stages: str
    columns: int
    turn: int
    threads: int
    steps: tuple[int, int] = (0, 0)
    threes: int = 0


class Stack(LaunchRecord, kernel="stack"):
    """A stack from x to y; z and v are tensors from outside. Strides are in elements.

    ``c`` [.., channels]: numbers per channel in the order of the stages. ``sizes``: rows and columns of x and
    after each window. ``strips`` of columns, ``bands`` of ``band_rows`` rows, ``groups`` of blocks for a
    band.
    """

    x: F4
    y: F4
    z: F4
    v: F4
    c: F4
    sizes: I4
    channels: int
    strips: int
    groups: int
    bands: int
    band_rows: int
    x_image: I8
    x_row: int
    x_col: int
    x_channel: int
    y_image: I8
    y_row: int
    y_col: int
    y_channel: int
    z_image: I8
    z_row: int
    z_col: int
    z_channel: int
    v_image: I8
    v_row: int
    v_col: int
    v_channel: int
