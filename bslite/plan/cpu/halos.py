"""Zeros beside images: how many each convolution needs, and how many each buffer gets."""

from collections.abc import Mapping, Sequence

from bslite import ops
from bslite.ops import RowMap
from bslite.passes import Layer
from bslite.passes.families import CONVS, INT_CONVS, TRANSPOSED, UPDATES
from bslite.plan.core.bands import WINDOWED, Crop
from bslite.plan.core.concats import Place
from bslite.plan.core.views import NO_HALO, Halo
from bslite.plan.core.windows import shapes_of_params, updated_windows, windows_of
from bslite.spec import ModelSpec

#: Convolutions that may see a band of rows.
BANDED = tuple(op for op in (*CONVS, *INT_CONVS) if op in WINDOWED)


def wider(a: Halo, b: Halo) -> Halo:
    """The smallest halo that contains both."""
    return max(a[0], b[0]), max(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3])


def halo_of(layer: Layer, maps: RowMap, crop: Crop) -> tuple[int, Halo, Halo]:
    """Start, padding within the band, and halo of a convolution.

    The start is the row of the input, counted from the band's row 0, at which the first window begins. The
    halo is the zeros that must lie around the input: only those beside it, because sums leave out filter rows
    above or below the image. An image of one column is a line from top to bottom, as a signal is a line.
    """
    name, signal = layer.node.inputs[0], len(crop.whole[layer.name]) == 3
    padded = layer.node.attrs["padding"]
    top, left, bottom, right = (padded[0], 0, padded[1], 0) if signal else padded
    start, stop = -top, bottom
    if layer.name in crop.rows:
        (a, z), (first, last) = crop.rows[layer.name], crop.rows[name]
        start = a * maps.stride - top - first
        stop = (z - 1) * maps.stride - top + maps.extent - last
    padding = max(0, -start), left, max(0, stop), right
    if signal:
        return start, padding, (0, padding[0], 0, padding[2])
    return start, padding, padding if is_column(layer, crop) else (0, left, 0, right)


def is_column(layer: Layer, crop: Crop) -> bool:
    """Whether a convolution's images are of one column, without padding beside it, before and after.

    Its filters are then one column, too. The column is taken as a line: a line of one pixel would load the
    weights for that pixel alone.
    """
    node = layer.node
    ends = (node.inputs[0], layer.name)
    sizes = [crop.whole[name][3] for name in ends if len(crop.whole[name]) == 4]
    return node.declaration.plain == "conv2d" and sizes == [1, 1] and not any(node.attrs["padding"][1::2])


def halo_needs(
    layers: Sequence[Layer], places: Mapping[str, Place], spec: ModelSpec, crop: Crop
) -> dict[str, Halo]:
    """The zeros that each buffer should have around its images, by the value or concat that owns it."""
    needs: dict[str, Halo] = {}
    for layer in layers:
        if layer.node.declaration.plain not in (*CONVS, *INT_CONVS, *TRANSPOSED, *UPDATES):
            continue
        name = layer.node.inputs[0]
        owner = name
        if name in places:
            if places[name].axis != 1:
                continue
            owner = places[name].root
        needs[owner] = wider(needs.get(owner, NO_HALO), layer_halo(layer, spec, crop))
    return needs


def layer_halo(layer: Layer, spec: ModelSpec, crop: Crop) -> Halo:
    """The zeros that a convolution needs around its input."""
    node = layer.node
    if node.op in UPDATES:
        cols = updated_windows(node.attrs, *(crop.whole[name] for name in node.inputs)).cols
        return 0, cols.before, 0, cols.after
    params = shapes_of_params(spec, node, crop.whole)
    if node.declaration.plain in BANDED:
        maps = ops.get(node.declaration.plain).rows(params, node.attrs)
        assert maps is not None
        return halo_of(layer, maps, crop)[2]
    halo = NO_HALO
    for window in windows_of(node, params, crop.whole, layer.name):
        halo = wider(halo, window.halo)
    return halo
