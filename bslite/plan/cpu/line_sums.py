"""Sums of lines, which a layer writes beside its results for one that averages the whole image.

Squeeze-and-excitation averages what a depthwise convolution makes. The average of a large image is a sum of
its lines' sums, each from left to right: the layer that makes a line has it in L1 and can sum it as well.
"""

from collections.abc import Iterable, Mapping

from bslite.ops import Shape
from bslite.passes import Layer
from bslite.plan.core.views import NO_HALO, View, size_of
from bslite.plan.cpu.step import CpuBuilder

LARGE = 128  # pixels from which on an average over a whole image takes two steps


def by_lines(layer: Layer, shapes: Mapping[str, Shape]) -> bool:
    """Whether a layer averages a whole image, or a sequence, that is so large that it takes two steps: then
    each line is summed, and the sums are. The size alone says so, so that the order of the sum depends on
    nothing else.
    """
    if layer.node.op not in ("adaptive_avg_pool1d", "adaptive_avg_pool2d"):
        return False
    sizes = shapes[layer.node.inputs[0]][2:]
    return size_of(shapes[layer.name][2:]) == 1 and size_of(sizes) >= LARGE


def want_line_sums(b: CpuBuilder, layers: Iterable[Layer]) -> None:
    """Note of which values the layers to come want sums of lines; of a plan of single layers, of none."""
    if not b.layerwise:
        images = [n for n in layers if n.node.op == "adaptive_avg_pool2d" and by_lines(n, b.shapes)]
        b.line_sums = dict.fromkeys((n.node.inputs[0] for n in images), None)


def line_sums_of(b: CpuBuilder, layer: Layer, y: View) -> View | None:
    """Where the sums of the lines of ``y``, all the results of a layer, are wanted: ``[N, C, H, 1]``."""
    name = layer.name
    if name not in b.line_sums or layer.node.op != "conv2d" or y.shape != b.shapes[name]:
        return None
    n, c, h, w = y.shape
    if w == 1:  # its lines may be columns
        return None
    sums = b.line_sums[name] = b.fresh((n, c, h, 1), 1, NO_HALO)
    return sums
