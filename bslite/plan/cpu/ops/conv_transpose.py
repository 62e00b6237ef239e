"""Lowering of transposed convolutions to convolutions: one for every place within a stride.

Outputs that are ``stride`` apart use the same taps of the filter, so each such phase is a small convolution
of the input, on the same kernels as any other, that writes every ``stride``-th pixel of every ``stride``-th
line. No product with an inserted zero is computed.
"""

from bslite.passes import Layer
from bslite.plan.core.lowering import CPU
from bslite.plan.core.windows import windows_of
from bslite.plan.cpu.halos import layer_halo
from bslite.plan.cpu.ops.conv import convolve
from bslite.plan.cpu.step import CpuBuilder
from bslite.plan.shared.conv import filters_of, residual_of


@CPU.register("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def lower_conv_transpose(b: CpuBuilder, layer: Layer) -> None:
    """Lower a transposed convolution: a step for every phase, with residual and activation in its store."""
    node = layer.node
    filters = filters_of(b, layer)
    depthwise = filters.depthwise and layer.residual is None
    halo = layer_halo(layer, b.spec, b.crop)
    x = b.read(node.inputs[0], halo=halo, exact=not depthwise)
    y, residual = b.write(layer.name), residual_of(b, layer)
    for window in windows_of(node, b.spec.param_shapes(node), b.shapes, layer.name):
        clipped = window.by_planes or bool(window.rows.before or window.rows.after)
        convolve(b, layer, x, y, residual, window, filters, clipped)
