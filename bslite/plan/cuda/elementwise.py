"""Operands of the elementwise kernels: broadcast by strides of zero, with axes merged where strides allow."""

import dataclasses
from collections.abc import Sequence

from bslite.kernels.contracts.activation import Activation
from bslite.kernels.contracts.cuda.elementwise import (
    Elementwise,
    ElementwiseVariant,
    Loops,
    Pointwise,
    PointwiseVariant,
)
from bslite.kernels.contracts.record import Operand
from bslite.plan.core.loops import merged_axes, padded
from bslite.plan.core.views import View, size_of
from bslite.plan.cuda.launch import MOST_ELEMENTS, CudaBuilder, launch
from bslite.plan.shared.elementwise import in_plain_order

AXES, EACH = Elementwise.AXES, Elementwise.EACH
THREADS = 256


def elementwise_step(
    b: CudaBuilder, function: str, operands: Sequence[View], y: View, act: Activation, flag: Operand | None
) -> None:
    """Append ``y = act(function(*operands))``, the operands broadcast to y's shape.

    An activation alone runs over one contiguous run of memory; it walks by strides if its input has gaps or
    is laid out differently from its result.
    """
    if function == "copy" and _alike(operands[0], y) and size_of(y.shape) <= MOST_ELEMENTS:
        _run(b, operands[0], y, act)
        return
    views = [v.broadcast(y.shape) for v in operands]
    nothing = dataclasses.replace(views[0], strides=(0,) * len(y.shape))
    everything = [*views, *[nothing] * (3 - len(views)), y]
    if max(size_of(y.shape), *(v.extent[1] - v.extent[0] for v in everything)) > MOST_ELEMENTS:
        axis = max(range(len(y.shape)), key=lambda a: y.shape[a])
        for start, stop in ((0, y.shape[axis] // 2), (y.shape[axis] // 2, y.shape[axis])):
            parts = [v.slice(axis, start, stop) for v in views]
            elementwise_step(b, function, parts, y.slice(axis, start, stop), act, flag)
        return
    sizes, runs = merged_axes(y.shape, [v.strides for v in everything], by=3)
    if len(sizes) > AXES:
        copies, made = in_plain_order(b, views, y)
        elementwise_step(b, function, copies, made, act, flag)
        b.copy(made, y)
        return
    if not sizes:
        sizes, runs = [1], [[1]] * 4
    count, axes = size_of(tuple(sizes)), len(sizes)
    sizes, runs = padded(sizes, runs, AXES)
    starts = [v.offset - v.extent[0] for v in everything]
    loops = Loops(*starts, *sizes[1:], *map(tuple, runs))
    places = [Operand(v.buffer, v.extent[0]) for v in everything]
    record = Elementwise(*places, flag or places[0], count, act.a, act.b, loops)
    threads = min(THREADS, b.machine.block_threads)
    variant = ElementwiseVariant(function, act.function, axes, threads)
    launch(b, record, variant, [-(-count // (threads * EACH))], [threads], list(operands), [y])


def _run(b: CudaBuilder, x: View, y: View, act: Activation) -> None:
    """Append an activation over a contiguous run of memory."""
    count = size_of(y.shape)
    threads = min(THREADS, b.machine.block_threads)
    record = Pointwise(x.start, y.start, count, act.a, act.b)
    blocks = -(-count // (threads * Pointwise.EACH))
    launch(b, record, PointwiseVariant(act.function, threads), [blocks], [threads], [x], [y])


def _alike(x: View, y: View) -> bool:
    """Return whether both views are contiguous runs whose elements lie in the same order."""
    same = all(n == 1 or p == q for n, p, q in zip(x.shape, x.strides, y.strides, strict=True))
    return same and _dense(x) and _dense(y)


def _dense(view: View) -> bool:
    """Return whether the view's elements fill one run of memory without gaps."""
    lo, hi = view.extent
    return (
        hi - lo == size_of(view.shape)
        and lo == view.offset
        and (0 not in view.strides or size_of(view.shape) == 1)
    )
