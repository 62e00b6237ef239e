"""Bands of rows: the rows of each value of a stack that are needed to compute some rows of its outputs. The
"rows" of a signal ``[N, C, L]`` are its L pixels.

The map of each op from output rows to input rows, followed from the stack's end to its start (BrainSlug,
arXiv 1804.08378; the halo of a tile). Rows that two bands need are computed by both.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from bslite.ops import RowMap, Shape
from bslite.ops.core import ParamShapes
from bslite.passes import Layer
from bslite.spec import ModelSpec, Node

Shapes = Mapping[str, Shape]
Rows = tuple[int, int]  # [first, past the last)
#: Ops whose lowerings take a window of the image's rows; ops that map each row to itself need no window.
WINDOWED = tuple(
    f"{family}{axes}d" for axes in (1, 2) for family in ("conv", "int_conv", "max_pool", "avg_pool")
)


class Crop(NamedTuple):
    """The part of the images that a builder sees: ``rows`` of each value named; ``whole``: full shapes."""

    rows: Mapping[str, Rows]
    whole: Shapes

    def first(self, name: str) -> int:
        """The row of the whole image at which the value's row 0 lies."""
        return self.rows[name][0] if name in self.rows else 0


def row_map(node: Node, params: ParamShapes) -> RowMap | None:
    """The op's map from output rows to input rows, or None where it cannot be run on a band of rows."""
    rows = node.declaration.rows(params, node.attrs)
    if len(node.inputs) > 1 and rows != RowMap():
        return None  # a residual has the rows of the output
    return rows if node.op in WINDOWED or rows == RowMap() else None


def can_band(layer: Layer, spec: ModelSpec, shapes: Shapes, second: Collection[str]) -> bool:
    """Whether a band of rows of the layer's value can be computed from bands of rows of its inputs. A band is
    of images, or of signals, values whose channels are axis 1: they are in ``second``.
    """
    rank, names = len(shapes[layer.name]), (*layer.inputs, layer.name)
    signal = rank == 3 and all(name in second for name in names)
    if any(len(shapes[name]) != rank for name in names) or not (rank == 4 or signal):
        return False
    if row_map(layer.node, spec.param_shapes(layer.node)) is None:
        return False
    if layer.node.op in WINDOWED:
        return True
    # A pad or a slice may map row to row and still change the number of rows.
    height = shapes[layer.name][2]
    return all(shapes[name][2] in (1, height) for name in layer.inputs)


def input_rows(rows: Rows, reads: RowMap, out_height: int, height: int) -> Rows:
    """The rows, of ``height`` input rows, that the output rows ``rows`` are computed from; at least one."""
    if height == 1 and out_height > 1 and reads == RowMap():
        return 0, 1  # broadcast
    first = rows[0] * reads.stride - reads.before
    last = (rows[1] - 1) * reads.stride - reads.before + reads.extent
    first = min(max(first, 0), height - 1)
    return first, max(first + 1, min(last, height))


def share(height: int, band: int, bands: int) -> Rows:
    """The rows of a value that band number ``band`` of ``bands`` has to write."""
    return height * band // bands, height * (band + 1) // bands


def crop(
    layers: Sequence[Layer],
    maps: Mapping[str, RowMap],
    shapes: Shapes,
    leaving: Sequence[str],
    band: int,
    bands: int,
) -> Crop:
    """The rows of each value that the band needs or makes. ``maps``: by the layer's name.

    ``leaving``: values of which each band must make its share.
    """
    rows = {name: share(shapes[name][2], band, bands) for name in leaving}
    for layer in reversed(layers):
        if layer.name not in rows:
            continue  # no layer reads it
        height, mine = shapes[layer.name][2], rows[layer.name]
        for name in layer.inputs:
            if name in layer.node.inputs:
                read = input_rows(mine, maps[layer.name], height, shapes[name][2])
                rows[name] = hull(rows.get(name), read)
            if name == layer.residual:
                rows[name] = hull(rows.get(name), mine)
    return Crop(rows, shapes)


def hull(a: Rows | None, b: Rows) -> Rows:
    """The rows from the first to the last of both."""
    return b if a is None else (min(a[0], b[0]), max(a[1], b[1]))
