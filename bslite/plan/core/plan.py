"""The plan that an engine executes: plain, printable data, made without compiling anything."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from bslite.errors import InputError, IntegerRangeError
from bslite.kernels.contracts.record import Operand, Record
from bslite.ops import Shape
from bslite.plan.core.views import Buffer, View


@dataclass(frozen=True)
class Const:
    """Data that an engine derives from the parameters ``keys``; ``recipe`` names how (packing, folding)."""

    name: str
    recipe: str
    keys: tuple[str, ...] = ()
    args: tuple[tuple[str, Any], ...] = ()


class Flag(NamedTuple):
    """An error that steps of ``layer`` can find in values. ``{value}`` in ``text`` is a number that comes
    with it; ``beyond``: NumPy may have it where the engine has not: an integer that none of the engine's, or
    of its dtype, holds, or a length of 0.
    """

    layer: str
    text: str
    beyond: bool = False

    def error(self, value: int) -> InputError:
        """What to raise for ``value``."""
        message = f"layer {self.layer!r}: {self.text.format(value=value)}"
        return IntegerRangeError(message, self.layer, value) if self.beyond else InputError(message)


@dataclass(frozen=True)
class Access:
    """Elements that a step reads or writes: those in ``[lo, hi)`` of a buffer whose index mod ``period`` is
    in ``[first, last)``.

    ``inside`` exists only for a step that fills the zeros around an image: the extent of the image itself,
    which that step does not write. A step that touches nothing beyond the image need not wait for the zeros;
    a step that reads the image with its zeros reaches beyond it, and waits. (A slice of images with their
    zeros may lie inside the extent too. Its reader comes after the image's writer, and that one after these
    zeros, because a step waits for all steps before the last one that it needs.)
    """

    buffer: str
    lo: int
    hi: int
    period: int = 1
    first: int = 0
    last: int = 1
    inside: tuple[int, int] | None = None  # for the zeros around an image: the extent of the image

    def overlaps(self, other: "Access") -> bool:
        """Whether the two may touch a common element (of the same buffer)."""
        if self.buffer != other.buffer or self.hi <= other.lo or other.hi <= self.lo:
            return False
        for zeros, image in ((self.inside, other), (other.inside, self)):
            if zeros is not None and zeros[0] <= image.lo and image.hi <= zeros[1] and image.inside is None:
                return False
        same_grid = self.period == other.period > 1
        return not (same_grid and (self.last <= other.first or other.last <= self.first))


@dataclass(kw_only=True)
class Step:
    """One call of a kernel for ``layers``, on any target; see `plan.cpu.step.CpuStep` and
    `plan.cuda.launch.Launch`.

    ``record`` holds the kernel's arguments. ``after``: how many leading steps of the plan must be complete
    before this one starts.
    """

    record: Record
    layers: tuple[str, ...]
    reads: list[Access] = field(default_factory=list)
    writes: list[Access] = field(default_factory=list)
    after: int = 0

    @property
    def kernel(self) -> str:
        """The name of the kernel."""
        return str(self.record.kernel)

    @property
    def operands(self) -> dict[str, Operand]:
        """Where the kernel's tensors begin, by the names of its parameters."""
        return self.record.operands()

    @property
    def tile(self) -> str:
        """The kernel's register tile as ``rows x ...``, or an empty string."""
        return ""

    @property
    def work(self) -> str:
        """The cut of the work into items, as a line of the printed plan."""
        return ""

    @property
    def cut(self) -> str:
        """The cut of a depth-first step's images, in words."""
        return ""

    @property
    def inner(self) -> "AnyPlan | None":
        """The plan that a depth-first step runs in each item; if there are several, the typical one."""
        return None

    @property
    def written(self) -> int:
        """Bytes that the step writes; for a slice of channels, only these channels."""
        return sum(4 * (a.hi - a.lo) * (a.last - a.first) // a.period for a in self.writes)


S = TypeVar("S", bound=Step)


@dataclass
class Plan(Generic[S]):
    """Steps in order, the buffers they use with their places in the arena, and the needed constants."""

    model: str
    shapes: tuple[Shape, ...]
    threads: int
    steps: list[S]
    buffers: dict[str, Buffer]
    consts: dict[str, Const]
    values: dict[str, View]  # where each materialised value is (until the arena is reused)
    inputs: list[View]
    outputs: list[View]
    threads_in_region: int = 1  # of a run by OpenMP's threads, which wait for each other
    places: dict[str, int] = field(default_factory=dict)  # arena buffer -> first element
    arena_size: int = 0  # elements
    scratch_size: int = 0  # elements per thread
    flags: list[Flag] = field(default_factory=list)
    as_bytes: frozenset[int] = frozenset()  # places of inputs that are bytes, all others are cells

    def __str__(self) -> str:
        lines = [
            f"plan of {self.model!r} for {' '.join(map(str, self.shapes))}: {len(self.steps)} steps, "
            f"arena {self.arena_size * 4 / 1e6:.2f} MB, {self.threads} thread(s), "
            f"scratch {self.scratch_size * 4 / 1e6:.2f} MB each"
        ]
        return "\n".join(lines + self._lines())

    def _lines(self, indent: str = "") -> list[str]:
        width = max((len(s.kernel) for s in self.steps), default=0)
        lines = []
        for i, s in enumerate(self.steps):
            what = " + ".join(s.layers)
            if s.inner:
                what = f"{len(s.layers)} nodes {s.cut}, {4e-3 * s.inner.arena_size:,.0f} KB each:"
            lines.append(
                f"{indent}{i:4d} {s.kernel:<{width}} {s.work} writes {s.written / 1e3:8,.0f} KB  {what}"
            )
            if s.inner:
                lines += s.inner._lines(indent + "    ")
        return lines


AnyPlan = Plan[Any]


def accesses(views: Sequence[View]) -> list[Access]:
    """The elements that reading or writing these views touches; channel slices of one image stay apart."""
    found = []
    for v in views:
        lo, hi = v.extent
        period = 1
        first, last = 0, 1
        rank = len(v.shape)
        if rank in (3, 4, 5) and v.strides[1] == 1 and v.shape[1] < v.strides[-1]:
            period = v.strides[-1]
            first = v.offset % period
            last = first + v.shape[1]
            uneven = any(s % period for i, s in enumerate(v.strides) if i != 1 and v.shape[i] > 1)
            if last > period or uneven:  # not aligned with the pixel grid of the buffer
                period, first, last = 1, 0, 1
        found.append(Access(v.buffer, lo, hi, period, first, last))
    return found
