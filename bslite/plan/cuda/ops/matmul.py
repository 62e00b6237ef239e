"""The product of two computed matrices on the GPU's GEMM; broadcast axes have strides of zero."""

import itertools
import math

from bslite.kernels.contracts.cuda.gemm import Matrices, Outputs
from bslite.kernels.contracts.record import Operand
from bslite.passes import Layer
from bslite.plan.core.loops import merged_axes, padded
from bslite.plan.core.lowering import CUDA
from bslite.plan.core.views import NO_HALO, View
from bslite.plan.cuda.gemm.product import Product, append
from bslite.plan.cuda.launch import CudaBuilder
from bslite.plan.shared.attention import copied

AXES = 2  # batch axes that the kernel walks
MOST_LAUNCHES = 4  # launches for further batch axes; beyond, both operands are copied out in full


@CUDA.register("matmul")
def lower_matmul(b: CudaBuilder, layer: Layer) -> None:
    """Append ``[..., M, K] @ [..., K, N]``: the batch lies along the grid. Either axis of the second operand
    may be contiguous.
    """
    shape = b.shapes[layer.name]
    x, w = (b.values[name] for name in layer.node.inputs)
    batch = shape[:-2]
    if not _runs(x, -1) or min(x.strides) < 0:
        x = copied(b, x)
    if not (_runs(w, -1) or _runs(w, -2)) or min(w.strides) < 0:
        w = copied(b, w)
    y, home = b.writable(layer.name, len(shape) - 1)
    x, w = (v.broadcast((*batch, *v.shape[-2:])) for v in (x, w))
    if not _multiply(b, layer, x, w, y):
        x, w = copied(b, x), copied(b, w)
        y = b.fresh(shape, len(shape) - 1, NO_HALO)
        done = _multiply(b, layer, x, w, y)
        assert done
    if y is not home:
        b.copy(y, home)


def _runs(view: View, axis: int) -> bool:
    """Return whether the axis is contiguous."""
    return view.shape[axis] == 1 or view.strides[axis] == 1


def _multiply(b: CudaBuilder, layer: Layer, x: View, w: View, y: View) -> bool:
    """Append the launches for operands of the full batch; return False, and append none, if too many."""
    (m, k), n, batch = x.shape[-2:], w.shape[-1], y.shape[:-2]
    across = int(_runs(w, -1))
    w_row = w.strides[-2] if across else w.strides[-1]
    sizes, runs = merged_axes(batch, [x.strides[:-2], w.strides[:-2], y.strides[:-2]], by=2)
    x_row, y_row = x.strides[-2] if m > 1 else 0, y.strides[-2] if m > 1 else 0
    if len(sizes) == 1 and runs[1][0] == 0 and (m == 1 or (runs[0][0], runs[2][0]) == (m * x_row, m * y_row)):
        if m == 1:
            x_row, y_row = runs[0][0], runs[2][0]
        m, sizes, runs = m * sizes[0], [], [[], [], []]  # one matrix for all: all rows form one matrix
    missing = max(0, AXES - len(sizes))
    if missing:
        sizes, runs = padded(sizes, runs, AXES)
    outer, (rows, cols) = sizes[:-AXES], sizes[-AXES:]
    if math.prod(outer) > MOST_LAUNCHES:
        return False
    xs, ws, ys = (r[-AXES:] for r in runs)
    matrices = Matrices(cols, xs[0], xs[1], ws[0], ws[1])
    outputs = Outputs(y_outer=ys[0], y_inner=ys[1], y_row=y_row)
    for place in itertools.product(*map(range, outer)):
        at = [sum(i * s for i, s in zip(place, r, strict=False)) for r in runs]
        ax, aw, ay = (Operand(v.buffer, v.offset + i) for v, i in zip((x, w, y), at, strict=True))
        product = Product(
            m, n, k, ax, aw, ay, x_row, w_row, outputs, [x, w], [y], batch=rows * cols, matrices=matrices,
            across=across,
        )  # fmt: skip
        append(b, layer, product)
    return True
