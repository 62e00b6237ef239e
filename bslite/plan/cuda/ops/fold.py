"""Fold, the sum of columns into an image, by tables of offsets."""

from bslite.kernels.contracts.cuda.moves import Fold
from bslite.kernels.contracts.launch import Threads
from bslite.kernels.contracts.record import Operand
from bslite.passes import Layer
from bslite.plan.core.lowering import CUDA
from bslite.plan.core.views import size_of
from bslite.plan.cuda.launch import CudaBuilder, launch
from bslite.plan.cuda.rows import block_threads
from bslite.plan.shared.fold import fold_axes


@CUDA.register("fold")
def lower_fold(b: CudaBuilder, layer: Layer) -> None:
    """Append a fold. For each axis, a table lists the places in x of the windows that cover an element."""
    x, axes = b.flat(b.values[layer.node.inputs[0]]), fold_axes(layer)
    y, threads = b.dense(b.shapes[layer.name]), block_threads(b)
    total = size_of(y.shape)
    window, places = tuple(a.k for a in axes), tuple(a.w for a in axes)
    tables, lengths = [], []
    for i, axis in enumerate(axes):
        a_tap, a_place = size_of(window[i + 1 :]) * size_of(places), size_of(places[i + 1 :])
        found = [[tap * a_tap + place * a_place for tap, place in axis.found(at)] for at in range(axis.n)]
        most = max(1, *map(len, found))
        table = [offset for line in found for offset in (*line, *(-1,) * (most - len(line)))]
        tables.append(Operand(b.const("cells", values=table), 0))
        lengths.append(most)
    sizes = (axis.n for axis in axes)
    record = Fold(x.start, y.start, *tables, total, *sizes, *lengths, size_of(window) * size_of(places))
    launch(b, record, Threads(threads), [-(-total // threads)], [threads], [x], [y])
    b.alias(layer.name, y)
