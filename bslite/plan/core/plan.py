"""A Plan: what an engine executes. Plain data, printable, made without compiling anything."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bslite.ops import Shape
from bslite.plan.core.views import Buffer, View


@dataclass(frozen=True)
class Const:
    """Data an engine derives from the parameters ``keys``; ``recipe`` says how (packing, folding)."""

    name: str
    recipe: str
    keys: tuple[str, ...] = ()
    args: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Access:
    """Elements a step reads or writes: those in ``[lo, hi)`` of a buffer whose index mod ``period`` is in
    ``[first, last)``.

    ``inside``: of a step that fills the zeros around an image, the image's own extent. Who touches nothing
    beyond that, because it fills the image, need not wait; who reads the image with its zeros reaches beyond
    it, and does. (A slice of images with their zeros may lie inside too; its reader comes after the image's
    writer, and that after these zeros, because a step waits for all steps before the last one it needs.)
    """

    buffer: str
    lo: int
    hi: int
    period: int = 1
    first: int = 0
    last: int = 1
    inside: tuple[int, int] | None = None  # of the zeros around an image: the image, which they leave alone

    def overlaps(self, other: Access) -> bool:
        """Whether the two may touch a common element (of the same buffer)."""
        if self.buffer != other.buffer or self.hi <= other.lo or other.hi <= self.lo:
            return False
        for zeros, image in ((self.inside, other), (other.inside, self)):
            if zeros is not None and zeros[0] <= image.lo and image.hi <= zeros[1] and image.inside is None:
                return False
        same_grid = self.period == other.period > 1
        return not (same_grid and (self.last <= other.first or other.last <= self.first))


@dataclass(frozen=True)
class End:
    """Ties a buffer of a stack's plan to memory outside: image n's starts at ``offset + n * image``."""

    inner: str
    outer: str
    offset: int  # elements
    image: int  # elements


@dataclass(frozen=True)
class Band:
    """One work item of a stack for each image: plan number ``plan`` of the step's, between these ends."""

    plan: int
    ends: tuple[End, ...]


@dataclass
class Step:
    """One kernel over ``items`` independent work items. ``args`` fills the cells of the kernel's record.

    A value in ``args`` is an int, a float, or a list naming a kernel (``["gemm_sweep", 14, 2]``);
    ``operands`` are
    (buffer or const name, element offset).
    """

    kernel: str
    layers: tuple[str, ...]
    items: int
    args: dict[str, Any]
    operands: dict[str, tuple[str, int]]
    reads: list[Access] = field(default_factory=list)
    writes: list[Access] = field(default_factory=list)
    after: int = 0  # how many leading steps must be complete before this one starts
    # Of a "stack" step: plans that one thread runs from end to end, and the bands of an image they are for.
    plans: tuple[Plan, ...] = ()
    bands: tuple[Band, ...] = ()
    scratch: int = 0  # elements of memory that a thread needs for one of its items; of a stack, its plans say

    @property
    def stack(self) -> Plan | None:
        """Of a "stack" step, the plan that is typical of it: that of the band in the middle."""
        return self.plans[self.bands[len(self.bands) // 2].plan] if self.bands else None

    @property
    def tile(self) -> str:
        """Register tile as ``rows x vector registers``, where the kernel has one; on a GPU, what a thread of
        a stack takes at a time as ``rows x columns``.
        """
        variant = self.args.get("variant", {})
        if "columns" in variant:
            return f"{variant['turn']}x{variant['columns']}"
        rows = self.args.get("rows1")
        return f"{rows}x{self.args.get('width', 1)}" if rows else ""

    @property
    def written(self) -> int:
        """Bytes it writes; of a slice of channels, its part."""
        return sum(4 * (a.hi - a.lo) * (a.last - a.first) // a.period for a in self.writes)


@dataclass
class Plan:
    """Steps in order, the buffers they use with their place in the arena, and the constants they need."""

    model: str
    shapes: tuple[Shape, ...]
    threads: int
    steps: list[Step]
    buffers: dict[str, Buffer]
    consts: dict[str, Const]
    values: dict[str, View]  # where each materialised value is (or was, once the arena is reused)
    inputs: list[View]
    outputs: list[View]
    places: dict[str, int] = field(default_factory=dict)  # arena buffer -> first element
    arena_size: int = 0  # elements
    scratch_size: int = 0  # elements per thread
    flags: list[tuple[str, str]] = field(default_factory=list)  # layer, what its flag in "flags" means

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
            if s.stack:
                memory = 4e-3 * s.stack.arena_size
                what = f"{len(s.layers)} nodes in {len(s.bands)} band(s) of an image, {memory:,.0f} KB each:"
            work = f"items {s.items:5d} after {s.after:4d} tile {s.tile or '-':>5}"
            if "grid" in s.args:
                work = f"{s.items:7d} blocks of {'x'.join(map(str, s.args['block'])):<7}"
            lines.append(
                f"{indent}{i:4d} {s.kernel:<{width}} {work} writes {s.written / 1e3:8,.0f} KB  {what}"
            )
            if s.stack:
                lines += s.stack._lines(indent + "    ")
        return lines

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)


def accesses(views: Sequence[View]) -> list[Access]:
    """What reading or writing these views touches; channel slices of one image are told apart."""
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
