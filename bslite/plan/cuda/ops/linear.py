"""The linear layer on the GPU's GEMM: its weights ``[K, C]`` have the layout that the kernels read."""

from bslite.kernels.contracts.cuda.gemm import Outputs
from bslite.kernels.contracts.record import Operand
from bslite.passes import Layer
from bslite.plan.core.lowering import CUDA
from bslite.plan.core.views import NO_HALO, View, size_of
from bslite.plan.cuda.gemm.product import Product, append
from bslite.plan.cuda.launch import CudaBuilder
from bslite.plan.cuda.library import LibraryCall


def rows_of(b: CudaBuilder, view: View) -> View:
    """Return ``view`` as a matrix with rows along its last axis; a copy where strides cannot express it."""
    shape = (size_of(view.shape[:-1]), view.shape[-1])
    rows = view.reshape(shape)
    if rows is None or any(s < 0 for s in rows.strides):
        rows = b.fresh(shape, 1, NO_HALO)
        whole = rows.reshape(view.shape)
        assert whole is not None
        b.copy(view, whole)
    return rows


@CUDA.register("linear")
def lower_linear(b: CudaBuilder, layer: Layer) -> None:
    """Append ``x @ weight.T + bias`` for all rows of x."""
    node = layer.node
    k, c = b.spec.params[node.params["weight"]].shape
    x = rows_of(b, b.read(node.inputs[0], inner=-1))
    y = b.write(layer.name, inner=-1)
    out = y.reshape((x.shape[0], k))
    if out is None or (k > 1 and out.strides[1] != 1):
        out = b.fresh((x.shape[0], k), 1, NO_HALO)
    bias = node.params.get("bias")
    many = int(x.shape[0] > 1)  # a single row's stride has no meaning
    append(b, layer, Product(
        x.shape[0], k, c,
        x.start, Operand(b.const("param", node.params["weight"]), 0), out.start,
        many * x.strides[0], c, Outputs(y_row=many * out.strides[0]),
        [x], [out], bias=b.const("param", bias) if bias else None,
        library=LibraryCall("linear", x, out),
    ))  # fmt: skip
    if out.buffer != y.buffer:
        shaped = out.reshape(y.shape)
        assert shaped is not None
        b.copy(shaped, y)
