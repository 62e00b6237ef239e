"""Weights that are values: steps that pack them at each run, as recipes pack constants."""

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

from bslite.kernels.contracts.cpu import gemm as contract
from bslite.kernels.contracts.cpu.gemm import PackPanels
from bslite.kernels.contracts.record import Operand, Three
from bslite.passes import Layer
from bslite.plan.core.views import NO_HALO, View, contiguous
from bslite.plan.core.windows import Window, volume
from bslite.plan.cpu.outside import once
from bslite.plan.cpu.sharing import item_count
from bslite.plan.cpu.step import CpuBuilder, step
from bslite.plan.cpu.tiling import LineTiling
from bslite.plan.shared.conv import Filters

#: Panels, the element where the first image's begin, and the elements between two images' panels.
Packed = tuple[View, int, int]
Pack = Callable[[LineTiling], Packed]
AT_ONCE = 4  # panels of a block at least
PACK = 0.3  # cycles to pack a number


class Matrices(NamedTuple):
    """Matrices of ``rows`` x ``cols`` for each of the ``taps``, from element ``at`` of the view ``memory``.

    Strides and the places of taps are in elements. Three axes of ``sizes`` and strides ``runs`` lie around
    them.
    """

    memory: View
    at: int
    rows: int
    cols: int
    row: int
    col: int
    taps: Sequence[int] = (0,)
    sizes: Three = (1, 1, 1)
    runs: Three = (0, 0, 0)


def pack(b: CpuBuilder, m: Matrices, width: int, tail: int, panels: int) -> View:
    """Append the step that packs matrices into panels ``[matrices, elements]``, rows in the order of taps.

    Weights that all images share are packed before them.
    """

    def packed(b: CpuBuilder, memory: View) -> View:
        at = memory.offset + m.at - m.memory.offset
        return _pack(b, m._replace(memory=memory, at=at), width, tail, panels)

    return once(b, m.memory, packed)


def _pack(b: CpuBuilder, m: Matrices, width: int, tail: int, panels: int) -> View:
    size = m.rows * len(m.taps) * b.machine.lanes * ((panels - 1) * width + tail)
    const = b.consts.get(m.memory.buffer)
    if const is not None and const.recipe == "param":  # by a recipe, once
        of = {key: value for key, value in m._asdict().items() if key != "memory"}
        name = b.const("matrices", *const.keys, **of, lanes=b.machine.lanes, width=width)
        shape = math.prod(m.sizes), size
        return View(name, 0, shape, contiguous(shape), NO_HALO)
    matrices, packed, items = packed_matrices(b, m, size, panels, PACK)
    step(b, PackPanels(matrices, width, tail), items, [m.memory], [packed])
    return packed


def packed_matrices(
    b: CpuBuilder, m: Matrices, size: int, panels: int, cycles: float
) -> tuple[contract.Matrices, View, int]:
    """The record of matrices packed into ``panels`` of ``size`` elements together, the memory for them, and
    the number of items. ``cycles``: of a number.
    """
    n0, n1, n2 = m.sizes
    count = n0 * n1 * n2
    packed = b.dense((count, size))
    numbers = count * m.rows * len(m.taps) * m.cols
    blocks = min(panels, -(-item_count(b.machine, cycles * numbers) // count))
    block_panels = -(-panels // blocks)
    if m.col == 1:  # panels of a block take turns, so that what they read lies together
        block_panels = max(block_panels, min(AT_ONCE, -(-panels * count // b.machine.threads)))
    blocks = -(-panels // block_panels)
    x0, x1, x2 = m.runs
    places = b.const("offsets", values=[4 * t for t in m.taps])
    record = contract.Matrices(
        Operand(m.memory.buffer, m.at), packed.start, Operand(places, 0),
        (4 * x0, 4 * x1, 4 * x2), n1=n1, n2=n2, x_row=4 * m.row, x_col=4 * m.col, taps=len(m.taps),
        rows=m.rows, cols=m.cols, matrix_bytes=4 * size, panels=panels, block_panels=block_panels,
        blocks=blocks,
    )  # fmt: skip
    return record, packed, count * blocks


def given(b: CpuBuilder, layer: Layer, role: str) -> View | None:
    """A parameter of the layer that is a value."""
    name = layer.node.given.get(role)
    return None if name is None else b.values[name]


def with_weight(b: CpuBuilder, layer: Layer, filters: Filters) -> Filters:
    """The filters with their weight, if it is a value. One of several taps is copied with axis 1 innermost:
    the kernel then loads registers of a tap's matrix, not single elements.
    """
    view = given(b, layer, "weight")
    if view is not None and math.prod(view.shape[2:]) > 1:
        view = once(b, view, lambda b, view: b.arranged(view, 1, exact=True))
    return filters._replace(weight=view)


def weights_of(window: Window, filters: Filters) -> Matrices | None:
    """The filters of one convolution, a matrix for each group and tap, where they are a value."""
    view = filters.weight
    if view is None:
        return None
    w = volume(view)
    outer, inner, *taps = w.strides
    first = sum(a.first_tap * s for a, s in zip(window, taps, strict=True))
    steps = [a.tap_step * s for a, s in zip(window, taps, strict=True)]
    places = [
        sum(i * s for i, s in zip(tap, steps, strict=True))
        for tap in product(*(range(a.taps) for a in window))
    ]
    row, col = (outer, inner) if filters.recipe else (inner, outer)
    depth, channels = filters.group_depth, filters.group_channels
    apart = outer * (depth if filters.recipe else channels)
    return Matrices(
        view, view.offset + first, depth, channels, row, col, places, (1, 1, filters.groups), (0, 0, apart)
    )


def how_of(window: Window, filters: Filters) -> dict[str, Any]:
    """Arguments of the recipes: for a filter that is split up, the taps of this part of it."""
    if not filters.how:
        return {}
    return {
        **filters.how,
        "first": tuple(a.first_tap for a in window),
        "step": tuple(a.tap_step for a in window),
        "taps": tuple(a.taps for a in window),
    }


def packing(b: CpuBuilder, weights: Matrices) -> Pack:
    """What packs the weights for a step, and for the one of the pixels that remain only once."""
    return _packed_once(lambda tiling: pack(b, weights, tiling.width, tiling.tail, tiling.panels))


def packing_across(b: CpuBuilder, m: Matrices) -> Pack:
    """As `packing`, for sums along which lanes run."""
    return _packed_once(lambda _: pack_across(b, m))


def taps_apart(m: Matrices, window: Window) -> Matrices:
    """A matrix for each tap, where ``m`` has one for all of them."""
    return m._replace(
        taps=(0,), sizes=tuple(a.taps for a in window), runs=tuple(volume(m.memory).strides[2:])
    )


def pack_across(b: CpuBuilder, m: Matrices) -> View:
    """Append the step that packs matrices for sums along which lanes run: ``[matrices, elements]``."""
    turned = m._replace(rows=m.cols, cols=m.rows, row=m.col, col=m.row)
    return pack(b, turned, 1, 1, -(-m.rows // b.machine.lanes))


def _packed_once(make: Callable[[LineTiling], View]) -> Pack:
    made: list[View] = []

    def packed(tiling: LineTiling) -> Packed:
        if not made:
            made.append(make(tiling))
        return made[0], 0, 0

    return packed


def bias_of(b: CpuBuilder, layer: Layer, groups: int = 1) -> View | None:
    """The bias, where it is a value, with the channels of every group in whole registers."""
    view = given(b, layer, "bias")
    if view is None:
        return None
    mine = view.shape[0] // groups
    whole = -(-mine // b.machine.lanes) * b.machine.lanes
    if groups == 1 or whole == mine:
        return b.arranged(view, 0)
    memory = b.dense((groups, whole))
    b.copy(
        b.reshaped(view, (groups, mine)),
        View(memory.buffer, memory.offset, (groups, mine), (whole, 1), NO_HALO),
    )
    return memory
