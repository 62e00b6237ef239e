"""Lowering of `linear` to a "conv" step: the rows of x are its pixels."""

from bslite.kernels.contracts.cpu.sweep import Narrow
from bslite.kernels.contracts.cpu.tiles import Reads
from bslite.ops import Kind
from bslite.passes import Layer
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import View, size_of
from bslite.plan.core.windows import shapes_of_params
from bslite.plan.cpu.contraction import contraction, merge_lines, rows_apart
from bslite.plan.cpu.on_tiles.pixels import Near, Pixels, Places, in_lines
from bslite.plan.cpu.on_tiles.split import (
    LARGE,
    PIXEL,
    Sum,
    in_one_part,
    on_tiles,
    recurs,
    split_conv,
    stored,
    sweep_of,
)
from bslite.plan.cpu.on_tiles.split_weights import computed
from bslite.plan.cpu.packing import Matrices, bias_of, given, packing, packing_across
from bslite.plan.cpu.reduction import reduction_of_rows, sums_across
from bslite.plan.cpu.rounded import cells, on_dots, rounded, rounded_by_makers
from bslite.plan.cpu.step import CpuBuilder
from bslite.plan.cpu.unpacked import multiplied_unpacked
from bslite.spec import Node


@CPU.register("linear", "linear_given")
def lower_linear(b: CpuBuilder, layer: Layer) -> None:
    """Lower ``x @ weight.T + bias``: the rows of x are the pixels of a line, or of several lines."""
    node = layer.node
    k, c = shapes_of_params(b.spec, node, b.shapes)["weight"]
    x = b.read(node.inputs[0], inner=-1, exact=True)
    rows = b.reshaped(x, (size_of(x.shape[:-1]), c))
    weight = given(b, layer, "weight")
    dots = on_dots(b, node.params["weight"] if weight is None else None, c, k)
    if dots:
        rows, c = rounded(b, layer, rows), cells(c)
    across = not dots and sums_across(b.machine, k, c)
    direct = None if weight is not None or dots or across else _direct(b, layer, rows, k)
    read = rows if direct is None else direct
    y = b.write(layer.name, inner=-1)
    out = y.reshape((rows.shape[0], k))
    if out is None:  # a slice of a concat whose rows are not one run
        out = b.fresh((rows.shape[0], k), 1, (0, 0, 0, 0))
    m = rows.shape[0]
    terms = reduction_of_rows(c, k, across)
    if weight is None:
        pack, weights = None, stored(b, node.params["weight"], 1)
    else:
        outer, inner = weight.strides
        matrices = Matrices(weight, weight.offset, c, k, inner, outer)
        pack = packing_across(b, matrices) if across else packing(b, matrices)
        weights = computed(b, layer, matrices)
    size, (from_x, to_y) = in_lines(
        b.machine.threads,
        Pixels(1, 1, 1, m),
        [Places(v, v.start, 0, 0, 0, v.strides[0]) for v in (read, out)],
    )
    done = not (dots or across or _once_an_image(b, layer, 4 * k * c)) and split_conv(
        b, layer, size, Sum(PIXEL, c), from_x, Near(0, 0, 0), to_y, None, k, False, weights,
        None, lambda: bias_of(b, layer), Reads.FLOAT32 if direct is None else Reads.IN_PLACE,
    )  # fmt: skip
    if not done:
        rows = rows_apart(b, rows, k)
    if weight is not None and not (done or across):
        done = multiplied_unpacked(b, layer, rows, matrices, terms, out, given(b, layer, "bias"))
    if not done:
        geometry = {"x": (0, 0, rows.strides[0]), "y": (0, 0, out.strides[0]), "r": (0, 0, 0)}
        lines, geometry = merge_lines(b, 1, 1, m, k, geometry)
        recipe = "across" if across else "rounded_panels" if dots else "panels"
        contraction(
            b, layer, rows.start, out, None, lines, geometry, terms, channels=k, halo_reads=rows, pack=pack,
            bias=bias_of(b, layer), recipe=recipe, dots=dots, across=across,
        )  # fmt: skip
    if out.buffer != y.buffer:
        b.copy(b.reshaped(out, y.shape), y)


def _direct(b: CpuBuilder, layer: Layer, rows: View, outputs: int) -> View | None:
    """The rows as cells, where their makers store them so, and tiles can read them where they lie."""
    terms, key = rows.shape[1], layer.node.params["weight"]
    if not in_one_part(b.machine, terms) or not on_tiles(b, Sum(PIXEL, terms), outputs, None, key):
        return None
    return rounded_by_makers(b, layer, rows)


def _once_an_image(b: CpuBuilder, layer: Layer, weight_bytes: int) -> bool:
    """Whether an image of a batch is one row of a layer, whose weights are read for it alone, and have more
    bytes in parts than as they lie: behind the convolutions of a network, or in a model of rows if memory
    holds the weights.

    No size of a batch is looked at, because an image must have the same bits in any: only which layers lie
    between, each of which keeps rows apart.
    """
    name, key = layer.node.inputs[0], layer.node.params.get("weight")
    lies = b.tuning.in_memory(key, weight_bytes // 4) if key else Narrow.NO
    more = 2 * sweep_of(b, key).b_parts > lies.bytes
    if not b.machine.tile_cycles or not more or len(b.shapes[name]) != 2 or recurs(b.spec):
        return False
    made_by = {node.name: node for node in b.spec.nodes}
    while len(b.shapes[name]) == 2 and name in made_by:
        node = made_by[name]
        if len(node.inputs) != 1 or not _keeps_rows(node, len(b.shapes[node.inputs[0]])):
            return False
        name = node.inputs[0]
    rank = len(b.shapes[name])
    return rank >= 4 or (rank == 2 and weight_bytes >= LARGE)


def _keeps_rows(node: Node, rank: int) -> bool:
    """Whether row n of what a layer makes is of row n of its input, of so many axes, or of image n."""
    if node.op == "flatten":
        return bool(node.attrs["start_axis"] == 1)
    if node.op == "mean":
        return all(axis % rank for axis in node.attrs["axes"])
    return node.op == "linear" or node.declaration.kind in (Kind.POINTWISE, Kind.CHANNEL)
