"""Results that lie otherwise in the caller's array than where their step makes them: turned in its store.

A step of its own that turns a value reads it from further away, and writes as much again. Where a step sums
in one part, a line of its results is in L1 when it is done, and is turned from there.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from bslite.kernels.contracts.cpu.gemm import Conv, Turned
from bslite.kernels.contracts.record import Operand
from bslite.plan.core.loops import merged_axes
from bslite.plan.core.plan import accesses
from bslite.plan.core.views import View
from bslite.plan.cpu.step import CpuBuilder, CpuStep

CHANNELS = 1  # the axis


class Axis(NamedTuple):
    """An axis of pixels: elements between neighbours where they are made, and in the caller's array."""

    size: int
    made: int
    wanted: int


class Along(NamedTuple):
    """The axis, by number, that a loop goes along ``by`` so many at a time."""

    axis: int
    by: int


def turn_in_store(b: CpuBuilder, outputs: Sequence[View]) -> None:
    """Let convolutions write their results to the caller's arrays, where nothing else reads them."""
    for name, y in zip(b.spec.outputs, outputs, strict=True):
        x = b.values[name]
        held = b.buffers.get(x.buffer)  # none of a constant
        if x.buffer == y.buffer or held is None or held.kind != "arena" or not _turns(x, y):
            continue
        if sum(b.values[other].buffer == x.buffer for other in b.spec.outputs) > 1:
            continue
        makers = [s for s in b.steps if any(a.buffer == x.buffer for a in s.writes)]
        if any(a.buffer == x.buffer for s in b.steps for a in s.reads):
            continue
        made = [_turned(b, s, x, y) for s in makers]
        records = [record for record in made if record is not None]
        if not records or len(records) < len(made):
            continue
        for s, record in zip(makers, records, strict=True):
            s.record, s.writes = record, accesses([y])
            s.scratch += record.cut.pixels * record.y_col // 4 + b.machine.lanes
        b.values[name] = y


def _turns(x: View, y: View) -> bool:
    """Whether channels are neighbours in x, and pixels in y; a value that is repeated has no such place."""
    rank = len(x.shape)
    if any(n > 1 and stride == 0 for n, stride in zip(x.shape, x.strides, strict=True)):
        return False
    return 3 <= rank <= 5 and x.shape[CHANNELS] > 1 and x.strides[CHANNELS] == 1 and y.strides[-1] == 1


def _turned(b: CpuBuilder, step: CpuStep, x: View, y: View) -> Conv | None:
    """The record of a step that makes some of x with its results in y, if it can write them there."""
    record = step.record
    if not isinstance(record, Conv) or record.stored.has_cells or record.chunk_taps < record.taps:
        return None
    pixels = record.cut.pixels
    if record.y.buffer != x.buffer or pixels < b.machine.lanes:
        return None  # squares of registers would be mostly empty
    axes = _axes(x, y)
    if not axes:
        return None  # one pixel
    first, channel = _indices(record.y.at - x.offset, axes)
    planes = record.lines // record.plane_lines
    last = list(first)
    loops = (
        (record.images, record.y_image), (planes, record.y_plane), (record.plane_lines, record.y_line),
        (pixels, record.y_col),
    )  # fmt: skip
    at = sum(i * axis.wanted for i, axis in zip(first, axes, strict=True)) + channel * y.strides[CHANNELS]
    steps = []
    for count, stride in loops:
        along = _along(count, stride // 4, axes) if count > 1 else Along(0, 0)
        if along is None:
            return None
        last[along.axis] += (count - 1) * along.by
        steps.append(along.by * axes[along.axis].wanted)
    # The step may make more than the output, which is a slice of it: all that it writes must have a place.
    inside = all(i >= 0 and j < axis.size for i, j, axis in zip(first, last, axes, strict=True))
    channels = record.panels // record.group_panels * record.group_channels
    if not inside or channel + channels > x.shape[CHANNELS] or steps[-1] != 1:
        return None
    image, plane, line, _ = (4 * step for step in steps)
    place = Operand(y.buffer, y.offset + at)
    apart = Turned(place, 1, image, plane, line, 4 * y.strides[CHANNELS])
    unused = record.residual if record.has_residual else place
    return replace(
        record, y=place, residual=unused, y_image=0, y_plane=0, y_line=0,
        y_col=4 * record.width * b.machine.lanes, stored=replace(record.stored, cells=place, flag=place),
        apart=apart,
    )  # fmt: skip


def _axes(x: View, y: View) -> list[Axis]:
    """The axes of pixels, outermost first, merged where they are evenly spaced in both views."""
    shape, *strides = ((*v[:CHANNELS], *v[CHANNELS + 1 :]) for v in (x.shape, x.strides, y.strides))
    sizes, (made, wanted) = merged_axes(shape, strides, by=0)
    return [Axis(*axis) for axis in zip(sizes, made, wanted, strict=True)]


def _along(count: int, stride: int, axes: Sequence[Axis]) -> Along | None:
    """The axis that a loop goes along; None for a loop along several."""
    for number, axis in enumerate(axes):
        if stride % axis.made == 0 and (count - 1) * stride < axis.size * axis.made:
            return Along(number, stride // axis.made)
    return None


def _indices(offset: int, axes: Sequence[Axis]) -> tuple[list[int], int]:
    """Where an element of x is along the axes, and its channel."""
    found = []
    for axis in axes:
        index, offset = divmod(offset, axis.made)
        found.append(index)
    return found, offset
