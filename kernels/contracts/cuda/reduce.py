"""Records of reductions over four axes that keep three. Strides are in elements."""

from bslite.kernels.contracts.cuda.rows import TargetAxes, Three
from bslite.kernels.contracts.launch import F4, F8, I4, I8, R8, LaunchRecord, Threads
from bslite.kernels.contracts.record import Record

Four = tuple[I8, I8, I8, I8]


class ReduceVariant(Threads):
    """``width`` threads share a result. ``rows``: neighbouring threads read along the reduced axes.

    ``name``: the reduction; ``last_of``: the last of equal extremes is wanted.
    """

    width: int
    rows: int
    name: str
    last_of: int


class MergeVariant(Threads):
    """The variant of a merge, with one thread per result."""

    name: str
    last_of: int


class KeptAxes(Record):
    """The kept axes: sizes of the inner two of three, strides in x."""

    n1: int
    n2: int
    x: Three


class ReducedAxes(Record):
    """The reduced axes: sizes of all four but the outermost, strides in x."""

    m1: int
    m2: int
    m3: int
    s: Four


class Reduce(LaunchRecord, kernel="reduce"):
    """``results`` results of ``count`` elements each; ``divisor``: the divisor of a mean."""

    x: F4
    y: F4
    results: int
    count: int
    kept: KeptAxes
    to: TargetAxes
    reduced: ReducedAxes
    divisor: R8


class ReducePlace(Reduce, kernel="reduce_place"):
    """A `Reduce` whose result is a position."""

    y: I4


class ReduceIntegers(Reduce, kernel="reduce_integers"):
    """A `Reduce` of integers; ``flag`` is raised by a result that does not fit 32 bits."""

    x: I4
    y: I4
    flag: I4


class ReducePart(LaunchRecord, kernel="reduce_part"):
    """``made[result, part]``: the partial reduction of ``chunk`` elements."""

    x: F4
    made: F8
    results: int
    count: int
    chunk: int
    parts: int
    kept: KeptAxes
    reduced: ReducedAxes


class ReduceMerge(LaunchRecord, kernel="reduce_merge"):
    """The results, merged from the parts of `ReducePart`."""

    made: F8
    y: F4
    results: int
    count: int
    parts: int
    n1: int
    n2: int
    to: TargetAxes
    divisor: R8


class ReduceMergePlace(ReduceMerge, kernel="reduce_merge_place"):
    """A `ReduceMerge` whose result is a position."""

    y: I4
