"""Operands as the loops of the elementwise kernel: broadcast, merged, cut into items."""

import dataclasses
import functools
from collections.abc import Sequence

from bslite.kernels.contracts.activation import Activation
from bslite.kernels.contracts.cpu.elementwise import Elementwise, Function, Loops
from bslite.kernels.contracts.cpu.epilogue import Epilogue
from bslite.kernels.contracts.elementwise import INTEGERS, on_integers
from bslite.kernels.contracts.record import Operand
from bslite.machine import Machine
from bslite.ops import Shape
from bslite.plan.core.loops import into_items, merged_axes, split_for_items
from bslite.plan.core.views import NO_HALO, View, channel_axis, size_of
from bslite.plan.cpu.on_tiles.prologue import note_scaled
from bslite.plan.cpu.ops.move import in_bytes
from bslite.plan.cpu.sharing import item_count
from bslite.plan.cpu.step import CpuBuilder, step
from bslite.plan.shared.elementwise import in_plain_order

LINE = 256  # cells of a line at most that is made of several
#: Cycles of a register of results, where they differ from four.
CYCLES = {
    **dict.fromkeys(("copy", "affine", "add", "mul"), 2.0),
    "silu_grad": 20.0, "gelu_grad": 30.0, "gelu_tanh_grad": 25.0,
    "pow": 80.0, "div": 10.0, "fmod": 60.0, "remainder": 60.0, "atan2": 40.0, "logaddexp": 60.0,
    "float_to_int": 60.0,
    **{on_integers(name): 60.0 for name in INTEGERS},
}  # fmt: skip


def elementwise_step(
    b: CpuBuilder, function: str, operands: Sequence[View], y: View, act: Activation, flag: Operand | None
) -> None:
    """Append ``y = act(function(*operands))``, the operands broadcast to y's shape."""
    inner = _inner_axis_of(y)
    direct = not y.shape or y.strides[inner] == 1 or y.shape[inner] == 1
    target = y if direct else b.fresh(y.shape, inner, NO_HALO)
    _step(b, function, [_aligned(b, v, y.shape, inner) for v in operands], target, act, flag)
    if not direct:
        b.copy(target, y)


def inner_axis(shape: Shape) -> int:
    """The axis kernels vectorise over: the channels, or if there is only one, the last longer than 1."""
    channels = channel_axis(len(shape))
    if not shape or shape[channels] != 1:
        return channels
    return max((a for a, n in enumerate(shape) if n != 1), default=channels)


def _inner_axis_of(y: View) -> int:
    """The contiguous axis of y, if there is one."""
    found = (a for a, (n, s) in enumerate(zip(y.shape, y.strides, strict=True)) if n != 1 and s == 1)
    return next(found, inner_axis(y.shape))


def _aligned(b: CpuBuilder, view: View, shape: Shape, inner: int) -> View:
    """``view`` broadcast to ``shape``, contiguous or constant along ``inner``."""
    own = (1,) * (len(shape) - len(view.shape)) + view.shape
    there = view.broadcast(own)
    if shape and there.strides[inner] != 0:
        there = b.arranged(there, inner, exact=True)
    return there.broadcast(shape)


def _step(
    b: CpuBuilder, function: str, operands: Sequence[View], y: View, act: Activation, flag: Operand | None
) -> None:
    """Append the step for operands of y's shape, some of whose strides may be zero."""
    nothing = dataclasses.replace(operands[0], strides=(0,) * len(y.shape))
    views = [*operands, *[nothing] * (3 - len(operands))]
    how = _loops(b.machine, y.shape, tuple([v.strides for v in (*views, y)]), CYCLES.get(function, 4.0))
    if how is None:
        copies, made = in_plain_order(b, operands, y)
        _step(b, function, copies, made, act, flag)
        b.copy(made, y)
        return
    loops, inner, again, items = how
    epilogue = Epilogue.of(act)
    maps = function == "copy" and inner[0] and epilogue.after.activation is not None
    record = Elementwise(
        *(v.start for v in views), y.start, flag or views[0].start, loops, *inner, again,
        None if maps else Function(function), epilogue,
    )  # fmt: skip
    step(b, record, items, list(operands), [y], scratch=3 * loops.channels if any(again) else 0)
    note_scaled(b, function, operands, y, act)


@functools.lru_cache(4096)
def _loops(
    machine: Machine, shape: Shape, strides: tuple[Shape, ...], cycles: float
) -> tuple[Loops, list[int], tuple[int, ...], int] | None:
    """The loops over values of these strides, the last of them the result's; the strides along lines; of each
    operand how many cells come again along a line, or 0; the number of items. None for more axes than the
    kernel has.
    """
    sizes, runs = merged_axes(shape, strides, by=3)
    if len(sizes) > Elementwise.AXES:
        return None
    if not sizes or any(run[-1] not in (0, 1) for run in runs[:3]) or runs[3][-1] != 1:
        sizes, runs = [*sizes, 1], [[*run, 1] for run in runs]
    sizes, runs, again = _longer_lines(machine.lanes, sizes, runs)
    sizes, runs = split_for_items(sizes, runs, 2 * machine.threads, 1 << 14)
    inner = [run[-1] for run in runs[:3]]
    total = size_of(shape)
    read = sum(any(run) for run in runs[:3])
    moved = 4.0 * total * (1 + read) / machine.l3_bytes_per_cycle
    items = item_count(machine, cycles * total / machine.lanes + moved)
    sizes, runs = into_items(sizes, runs, items, Elementwise.AXES)
    return (
        Loops(tuple(sizes[:-1]), sizes[-1], *(in_bytes(run[:-1]) for run in runs)),
        inner,
        again,
        sizes[0] * sizes[1],
    )


def _longer_lines(
    lanes: int, sizes: list[int], runs: list[list[int]]
) -> tuple[list[int], list[list[int]], tuple[int, ...]]:
    """Several lines of few channels as one, where some operands are the same for all lines (the mean of each
    channel, less which an image with its channels last is): these come again so often. With how many cells of
    each operand do so.
    """
    none = (0, 0, 0)
    if len(sizes) < 2 or sizes[-1] >= 2 * lanes:
        return sizes, runs, none
    lines, few = sizes[-2:]
    same = [run[-1] == 1 and few > 1 and not any(run[:-1]) for run in runs]
    if same[3] or not any(same):
        return sizes, runs, none
    if not all(s or run[-2:] in ([few, 1], [0, 0]) for s, run in zip(same, runs, strict=True)):
        return sizes, runs, none
    most = min(LINE // few, lines // 4)  # what is written out is read several times
    joined = max((n for n in range(1, most + 1) if lines % n == 0), default=1)
    if joined * few < 4 * lanes:
        return sizes, runs, none
    ends = [run[-2] * joined for run in runs]
    return (
        [*sizes[:-2], lines // joined, few * joined],
        [[*run[:-2], end, run[-1]] for run, end in zip(runs, ends, strict=True)],
        tuple(few * s for s in same[:3]),
    )
