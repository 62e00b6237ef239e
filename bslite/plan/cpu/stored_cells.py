"""Results stored as cells of two bfloat16 by the steps that make them, for layers that read them so.

A step of its own that rounds a value reads it from memory and writes half as much. Register tiles of
convolutions and linear layers round their sums, layers on tiles each block of them; where an activation comes
after the store, a line is rounded while it is in L1. Where nobody reads the float32 results, they are not
stored.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from bslite.kernels.contracts.cpu.cells import Cells
from bslite.kernels.contracts.cpu.gemm import Conv, Depthwise
from bslite.kernels.contracts.cpu.tiles import LINE, SplitConv
from bslite.kernels.contracts.record import Operand
from bslite.passes import Layer
from bslite.plan.core.plan import accesses
from bslite.plan.core.views import NO_HALO, Halo, View
from bslite.plan.core.windows import volume
from bslite.plan.cpu.outside import inexact_flag
from bslite.plan.cpu.step import CpuBuilder, CpuStep

#: Elements between pixels that are not the value's, from which on cells have a layout of their own.
SPARSE = 64
APART = LINE // 4  # elements more between pixels that would meet in L1
KEPT = 0.25  # the part of L2 that float32 results may take until they are rounded


Maker: TypeAlias = Conv | SplitConv | Depthwise  # records of steps that can store cells


class Made(NamedTuple):
    """What a step makes: ``counts`` and ``strides`` (in elements) of images, planes, lines and pixels; a
    plane's last line lacks ``short`` pixels.
    """

    channels: int
    counts: tuple[int, ...]
    strides: tuple[int, ...]
    short: int = 0

    @property
    def last(self) -> int:
        """From the first pixel to the last one, in elements."""
        whole = sum((n - 1) * s for n, s in zip(self.counts, self.strides, strict=True))
        return whole - self.short * self.strides[-1]


def stored_by_makers(b: CpuBuilder, layer: Layer, x: View, halo: Halo) -> View | None:
    """``x`` as cells along axis 1 with ``halo`` zeros around it, stored by the steps that make x; None,
    without a change, where not all of them can.
    """
    (wanted,) = accesses([x])
    makers = [s for s in b.steps if any(a.overlaps(wanted) for a in s.writes)]
    if b.layerwise or not makers or not all(map(_able, makers)):
        return None
    made = [_made_by(s) for s in makers]
    starts = [s.record.operands()["y"].at - x.offset for s in makers]
    # Rows of a tile must not all meet in a few sets of L1.
    meet = b.machine.tile_cycles > 0 and 2 * x.shape[1] % (4 * LINE) == 0
    alike = all(_same(x, *of) for of in zip(starts, made, strict=True))
    inside = halo == NO_HALO and _halves(x) and all(_inside(x, *of) for of in zip(starts, made, strict=True))
    if inside and not (meet and alike):
        first, last = x.extent
        y = View(b.buffer((last - first) // 2 + 1).name, 0, _shape(x), _halved(x))
        places = [s // 2 for s in starts]
        made = [m._replace(strides=tuple(s // 2 for s in m.strides)) for m in made]
    elif alike:
        before = len(b.steps)
        n, number, *sizes = shape = _shape(x)
        y = replace(b.fresh((n, number + meet * APART, *sizes), 1, halo), shape=shape)
        zeros, b.steps[before:] = b.steps[before:], []
        first_maker = next(i for i, s in enumerate(b.steps) if s is makers[0])
        b.steps[first_maker:first_maker] = zeros  # as everywhere, before who writes the image: see `Access`
        i, _, p, line, col = volume(y).strides
        places = [y.offset + s // 2 for s in starts]
        made = [m._replace(strides=(i, p, line, col)) for m in made]
    else:
        return None
    flag = inexact_flag(b, layer)
    for maker, at, lines in zip(makers, places, made, strict=True):
        strides = tuple(4 * s for s in lines.strides)
        maker.record = _storing(maker.record, Cells(Operand(y.buffer, at), flag, 1, 0, 0, *strides))
        i, p, line, col = lines.strides
        shape = (lines.counts[0], -(-lines.channels // 2), *lines.counts[1:])
        (stored,) = accesses([View(y.buffer, at, shape, (i, 1, p, line, col))])
        maker.writes.append(replace(stored, hi=stored.hi - lines.short * col))
    return y


def _able(step: CpuStep) -> bool:
    """Whether a step can store cells, and stores none yet. Those of a group with an odd number of channels
    would lie in two.
    """
    record = step.record
    if not isinstance(record, Maker) or record.stored.has_cells:
        return False
    if isinstance(record, Depthwise):
        return True
    apart = record.group_panels == record.panels or record.group_channels % 2 == 0
    return apart and (isinstance(record, SplitConv) or record.sweep.dots)


def _storing(record: Maker, cells: Cells) -> Maker:
    """The record of a step that stores its results so, too: by register tiles if nothing comes after them."""
    if isinstance(record, SplitConv):
        return replace(record, stored=cells)
    if record.end.after.activation is None:
        cells = replace(cells, cells_by_tile=1)
        if isinstance(record, Conv):
            return replace(record, stored=cells)
        if not record.has_sums:
            return replace(record, stored=cells, sweep=replace(record.sweep, cells=True))
    return replace(record, stored=replace(cells, cells_by_tile=0))


def _made_by(step: CpuStep) -> Made:
    record = step.record
    assert isinstance(record, Maker)
    if isinstance(record, SplitConv):
        channels = record.group_channels * record.groups
        counts = record.images // record.planes, record.planes, record.lines, record.pixels
        return Made(channels, counts, _strides(record, counts), record.short)
    if isinstance(record, Conv):
        channels = record.group_channels * (record.panels // record.group_panels)
        images = record.images
    else:
        channels, images = record.channels, step.items // (record.bands * record.blocks)
    counts = images, record.lines // record.plane_lines, record.plane_lines, record.cut.pixels
    return Made(channels, counts, _strides(record, counts))


def _strides(record: Maker, counts: tuple[int, ...]) -> tuple[int, ...]:
    """Those of a record's results, in elements; 0 along what there is one of."""
    strides = record.y_image, record.y_plane, record.y_line, record.y_col
    return tuple(s // 4 if n > 1 else 0 for n, s in zip(counts, strides, strict=True))


def _shape(x: View) -> tuple[int, ...]:
    return (x.shape[0], -(-x.shape[1] // 2), *x.shape[2:])


def _halved(x: View) -> tuple[int, ...]:
    return tuple(s if a == 1 else s // 2 for a, s in enumerate(x.strides))


def _halves(x: View) -> bool:
    """Whether the cells can lie as the numbers do, at half the distances: all of these even, few unused."""
    around = _around(x)
    return all(s > 0 and s % 2 == 0 for s in around) and min(around, default=0) < x.shape[1] + SPARSE


def _around(x: View) -> list[int]:
    """The strides of pixels."""
    return [s for a, (n, s) in enumerate(zip(x.shape, x.strides, strict=True)) if a != 1 and n > 1]


def _inside(x: View, start: int, made: Made) -> bool:
    """Whether cells of ``made``, which begin ``start`` elements after x, are those of x, wherever its pixels
    are.
    """
    channel = start
    for stride in sorted(_around(x), reverse=True):
        channel %= stride
    first, last = x.extent
    within = start >= 0 and start + made.last + made.channels <= last - first
    return within and all(s % 2 == 0 for s in made.strides) and _own_cells(x, channel, made)


def _same(x: View, start: int, made: Made) -> bool:
    """Whether ``made``, which begins ``start`` elements after x, has all its lines and pixels."""
    if len(x.shape) < 3:
        return False
    n, _, *sizes = volume(x).shape
    i, _, *strides = volume(x).strides
    alike = all(
        s == t for count, s, t in zip(made.counts, made.strides, (i, *strides), strict=True) if count > 1
    )
    return made.counts == (n, *sizes) and alike and _own_cells(x, start, made)


def _own_cells(x: View, channel: int, made: Made) -> bool:
    """Whether the channels of ``made``, from ``channel`` of x on, share no cell with others."""
    end = channel + made.channels
    return channel >= 0 and channel % 2 == 0 and (end == x.shape[1] or (end < x.shape[1] and end % 2 == 0))


def without_float32(b: CpuBuilder, kept: Collection[View]) -> None:
    """Let float32 results that no step reads, and that are not ``kept``, go; only their cells are stored."""
    read = {a.buffer for s in b.steps for a in s.reads} | {view.buffer for view in kept}
    writers: dict[str, list[CpuStep]] = {}
    for s in b.steps:
        for name in {a.buffer for a in s.writes}:
            writers.setdefault(name, []).append(s)
    gone: set[int] = set()
    for name in dict.fromkeys(s.writes[0].buffer for s in b.steps if _stores(s)):
        if name in read or b.buffers[name].kind != "arena":
            continue
        others = [s for s in writers[name] if not _stores(s)]  # zeros beside images
        alone = [(s, *_only_cells(b, s)) for s in writers[name] if _stores(s)]  # as they would be
        if any(a.buffer != name for s in others for a in s.writes):
            continue
        if any(4 * scratch > KEPT * b.machine.l2 for *_, scratch in alone):
            continue
        for s, record, scratch in alone:
            s.record, s.scratch = record, s.scratch + scratch
            s.writes = [a for a in s.writes if a.buffer != name]
        gone.update(map(id, others))
    b.steps[:] = [s for s in b.steps if id(s) not in gone]


def _stores(step: CpuStep) -> bool:
    return isinstance(step.record, Maker) and bool(step.record.stored.has_cells)


def _only_cells(b: CpuBuilder, step: CpuStep) -> tuple[Maker, int]:
    """The step's record without float32 results in memory, and the elements that they take in scratch memory:
    where they are rounded once they are stored, or are a part of their sums.
    """
    record, lanes = step.record, b.machine.lanes
    assert isinstance(record, Maker)
    stored = replace(record.stored, cells_only=1)
    if isinstance(record, SplitConv):
        return replace(record, y=stored.cells, stored=stored), 0  # there are sums in it anyway
    pixels = record.cut.pixels
    direct = bool(stored.cells_by_tile)
    if isinstance(record, Depthwise):
        col = record.run * lanes
        made = replace(record, y=stored.cells, stored=stored, y_image=0, y_plane=0, y_line=0, y_col=4 * col)
        return made, 0 if direct else pixels * col + lanes
    col = record.width * lanes
    in_parts = record.chunk_taps < record.taps  # the sums of all lines are needed
    line = pixels * col if in_parts else 0
    made = replace(
        record, y=stored.cells, stored=stored, y_image=0, y_plane=4 * line * record.plane_lines,
        y_line=4 * line, y_col=4 * col, strips=1,
    )  # fmt: skip
    return made, 0 if direct and not in_parts else pixels * col + line * (record.band_lines - 1) + lanes
