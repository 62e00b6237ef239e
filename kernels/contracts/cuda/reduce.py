"""Records of launches that reduce: three axes are kept, four reduced. Strides are in elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bslite.kernels.contracts.cuda.rows import TargetAxes, Threads, Three
from bslite.kernels.contracts.launch import F4, F8, I4, I8, R8, LaunchRecord
from bslite.kernels.contracts.record import Record

Four = tuple[I8, I8, I8, I8]


@dataclass(frozen=True)
class ReduceVariant(Threads):
    """``width`` threads have a result. ``rows``: neighbouring threads read along what is reduced.

    ``name``: the reduction; ``last_of``: of equal extremes, the last is wanted.
    """

    width: int
    rows: int
    name: str
    last_of: int


@dataclass(frozen=True)
class MergeVariant(Threads):
    """A thread has a result."""

    name: str
    last_of: int


@dataclass(frozen=True)
class KeptAxes(Record):
    """What is kept: sizes of the inner two of three axes, strides in x."""

    n1: int
    n2: int
    x: Three


@dataclass(frozen=True)
class ReducedAxes(Record):
    """What is reduced: sizes of four axes but the outermost, strides."""

    m1: int
    m2: int
    m3: int
    s: Four


@dataclass(frozen=True)
class Reduce(LaunchRecord):
    """``results`` results of ``count`` elements each; ``divisor``: what a mean divides by."""

    kernel: ClassVar[str] = "reduce"

    x: F4
    y: F4
    results: int
    count: int
    kept: KeptAxes
    to: TargetAxes
    reduced: ReducedAxes
    divisor: R8


@dataclass(frozen=True)
class ReducePlace(Reduce):
    """As `Reduce`; a result is a position."""

    kernel: ClassVar[str] = "reduce_place"

    y: I4


@dataclass(frozen=True)
class ReduceIntegers(Reduce):
    """As `Reduce`, of integers; ``flag`` notes a result that does not fit 32 bits."""

    kernel: ClassVar[str] = "reduce_integers"

    x: I4
    y: I4
    flag: I4


@dataclass(frozen=True)
class ReducePart(LaunchRecord):
    """``made[result, part]``: what is gathered of ``chunk`` elements."""

    kernel: ClassVar[str] = "reduce_part"

    x: F4
    made: F8
    results: int
    count: int
    chunk: int
    parts: int
    kept: KeptAxes
    reduced: ReducedAxes


@dataclass(frozen=True)
class ReduceMerge(LaunchRecord):
    """Results, from what `ReducePart` left."""

    kernel: ClassVar[str] = "reduce_merge"

    made: F8
    y: F4
    results: int
    count: int
    parts: int
    n1: int
    n2: int
    to: TargetAxes
    divisor: R8


@dataclass(frozen=True)
class ReduceMergePlace(ReduceMerge):
    """As `ReduceMerge`; a result is a position."""

    kernel: ClassVar[str] = "reduce_merge_place"

    y: I4
