"""Upper and lower triangles of matrices."""

from bslite.kernels.contracts.cuda.moves import Trilu, TriluVariant
from bslite.passes import Layer
from bslite.plan.core.lowering import CUDA
from bslite.plan.core.views import size_of
from bslite.plan.cuda.launch import CudaBuilder, launch
from bslite.plan.cuda.rows import block_threads


@CUDA.register("trilu")
def lower_trilu(b: CudaBuilder, layer: Layer) -> None:
    """Append a launch with a thread per element."""
    x, attrs = b.flat(b.values[layer.node.inputs[0]]), layer.node.attrs
    y, count, threads = b.dense(x.shape), size_of(x.shape), block_threads(b)
    height, width = x.shape[-2:]
    diagonal = max(-height, min(attrs["diagonal"], width))
    record = Trilu(x.start, y.start, count, height, width, diagonal)
    variant = TriluVariant(threads, int(attrs["upper"]))
    launch(b, record, variant, [-(-count // threads)], [threads], [x], [y])
    b.alias(layer.name, y)
