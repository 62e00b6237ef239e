"""Lowering of transposed convolutions to convolutions: one for every place within a stride.

Outputs that are ``stride`` apart use the same taps of the filter, so each such phase is a small convolution
of the input, on the same kernels as any other, that writes every ``stride``-th pixel of every ``stride``-th
line. No product with an inserted zero is computed.

Where filters do not overlap and have fewer channels than a register, as at the end of a segmentation, all
phases are one product per pixel whose results lie side by side, and a copy brings them to their places.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from bslite.passes import Layer
from bslite.passes.families import TRANSPOSED
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import NO_HALO, View
from bslite.plan.core.windows import Window, shapes_of_params, volume, windows_of
from bslite.plan.cpu.contraction import contraction, merge_lines
from bslite.plan.cpu.elementwise import elementwise_step
from bslite.plan.cpu.epilogue import epilogue
from bslite.plan.cpu.halos import layer_halo
from bslite.plan.cpu.ops.conv import convolve
from bslite.plan.cpu.ops.conv_input import read_for
from bslite.plan.cpu.packing import with_weight
from bslite.plan.cpu.reduction import reduction
from bslite.plan.cpu.step import CpuBuilder
from bslite.plan.shared.activation import activation
from bslite.plan.shared.conv import Filters, filters_of, residual_of


@CPU.register(*TRANSPOSED, *(f"{name}_given" for name in TRANSPOSED))
def lower_conv_transpose(b: CpuBuilder, layer: Layer) -> None:
    """Lower a transposed convolution: a step for every phase, with residual and activation in its store."""
    node = layer.node
    if _side_by_side(b, layer):
        _at_once(b, layer)
        return
    filters = with_weight(b, layer, filters_of(b, layer))
    x, filters = read_for(b, layer, filters, layer_halo(layer, b.spec, b.crop))
    y, residual = b.write(layer.name), residual_of(b, layer)
    params = shapes_of_params(b.spec, node, b.shapes)
    phases = windows_of(node, params, b.shapes, layer.name)
    gaps = max(phase.cols.step for phase in phases) > 1
    if gaps and y.shape[1] < b.machine.lanes and epilogue(layer.activation).after.activation:
        # A function of pixels apart, of few channels, would leave most of its lanes empty.
        made = b.fresh(y.shape, 1, NO_HALO)
        _phases(b, replace(layer, activation=None), x, made, residual, phases, filters)
        elementwise_step(b, "copy", [made], y, activation(layer.activation), None)
        return
    _phases(b, layer, x, y, residual, phases, filters)


def _phases(
    b: CpuBuilder, layer: Layer, x: View, y: View, residual: View | None, phases: Sequence[Window],
    filters: Filters,
) -> None:  # fmt: skip
    """Append a step for every phase, band by band where that is quicker."""
    depthwise = filters.depthwise and residual is None
    bands = _bands(b, y, phases) if depthwise else []
    if len(bands) > 1:
        _by_bands(b, layer, x, y, bands, phases, filters)
        return
    for window in phases:
        clipped = window.by_planes or bool(window.rows.before or window.rows.after)
        convolve(b, layer, x, y, residual, window, filters, clipped)


def _bands(b: CpuBuilder, y: View, phases: Sequence[Window]) -> Sequence[range]:
    """Rows that fit L2, of an image that does not, if phases write every other pixel.

    Memory takes pixels in their order at twice the rate of pixels with gaps. Threads that share an image
    would have to meet after every phase.
    """
    gaps = max(phase.cols.step for phase in phases) > 1 and len(y.shape) == 4
    line, step = 4 * y.shape[1] * y.shape[-1], max(phase.rows.step for phase in phases)
    if not gaps or b.machine.threads > 1 or y.shape[2] * line < b.machine.l2 // 2:
        return []
    rows = max(1, b.machine.l2 // 4 // (line * step)) * step
    return [range(first, min(y.shape[2], first + rows)) for first in range(0, y.shape[2], rows)]


def _by_bands(
    b: CpuBuilder, layer: Layer, x: View, y: View, bands: Sequence[range], phases: Sequence[Window],
    filters: Filters,
) -> None:  # fmt: skip
    """All phases of a band of rows, then a copy of it."""
    n, channels, _, width = y.shape
    memory = b.fresh((n, channels, len(bands[0]), width), 1, NO_HALO)
    for rows in bands:
        made = memory.slice(2, 0, len(rows))
        for phase in phases:
            window = phase.making(rows.start, rows.stop)
            if window is not None:
                clipped = bool(phase.rows.before or phase.rows.after)
                convolve(b, layer, x, made, None, window, filters, clipped)
        b.copy(made, y.slice(2, rows.start, rows.stop))


def _side_by_side(b: CpuBuilder, layer: Layer) -> bool:
    """Whether every output has one tap, and a register holds several phases of a pixel."""
    node, attrs = layer.node, layer.node.attrs
    _, channels, *taps = shapes_of_params(b.spec, node, b.shapes)["weight"]
    plain = attrs["groups"] == 1 and not any((*attrs["padding"], *attrs["output_padding"]))
    disjoint = tuple(taps) == tuple(attrs["stride"]) and set(attrs["dilation"]) == {1}
    return (
        plain
        and disjoint
        and len(taps) < 3
        and math.prod(taps) > 1
        and channels < b.machine.lanes
        and layer.residual is None
        and not node.given
    )


def _at_once(b: CpuBuilder, layer: Layer) -> None:
    """Append the product of all phases, and the copy to their places."""
    node = layer.node
    depth, channels, *taps = b.spec.param_shapes(node)["weight"]
    x, y = b.read(node.inputs[0], exact=True), b.write(layer.name)
    made = channels * math.prod(taps)
    apart = b.fresh((x.shape[0], made, *x.shape[2:]), 1, NO_HALO)
    n, _, _, h, w = volume(x).shape
    geometry = {"r": (0, 0, 0)}
    for key, view in {"x": volume(x), "y": volume(apart)}.items():
        image, _, _, line, col = view.strides
        geometry[key] = (image, line, col)
    size, geometry = merge_lines(b, n, h, w, made, geometry)
    bias = b.const(
        "phase_bias", *([node.params["bias"]] if "bias" in node.params else []), channels=channels,
        phases=math.prod(taps), lanes=b.machine.lanes,
    )  # fmt: skip
    contraction(
        b, layer, x.start, apart, None, size, geometry, reduction(1, 1, depth, 0, 0, True), channels=made,
        halo_reads=x, bias=bias, recipe="phase_panels",
    )  # fmt: skip
    above, across = (1, *taps)[-2:]
    ti, _, _, tl, tc = volume(apart).strides
    yi, yk, _, yl, yc = volume(y).strides
    shape = (n, h, above, w, across, channels)
    b.copy(
        View(apart.buffer, apart.offset, shape, (ti, tl, across * channels, tc, channels, 1)),
        View(y.buffer, y.offset, shape, (yi, above * yl, yl, across * yc, yc, yk)),
    )
