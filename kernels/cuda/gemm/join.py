"""The second pass of a sum in parts: it adds the parts in order, then applies the epilogue."""

import numpy as np

from bslite.kernels.contracts.cuda.gemm import Join, JoinVariant
from bslite.kernels.cuda.gemm.access import split
from bslite.kernels.cuda.math.functions import function_of
from bslite.kernels.cuda.runtime.device import cuda
from bslite.kernels.cuda.runtime.kernel import kernel

i32 = np.int32


@kernel(
    Join,
    registers=48,
    samples=[
        JoinVariant(scatter=0, bias=1, residual=0, code="relu"),
        JoinVariant(scatter=1, bias=1, residual=1, code="silu"),
    ],
)
def gemm_join(scatter, bias, residual, code):
    """Join ``parts [splits, outer, inner, rows, cols]`` into y, with strides as for `gemm`, in floats;
    ``count`` elements of y in all.

    Each thread has an element, neighbours side by side in every part: accesses are coalesced, and the kernel
    is bound by the bytes of the parts, which the blocks before have just left in L2.
    """

    activate = function_of(code)

    def gemm_join(
        parts, biases, r, y, count, splits, rows, cols, inner, bias_inner, y_outer, y_inner, y_row, r_row,
        planes, lines, pixels, y_image, y_plane, y_line, r_image, r_plane, r_line, a, b,
    ):  # fmt: skip
        i = i32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
        if i >= count:
            return
        total = parts[np.uint32(i)]
        for s in range(1, splits):
            total += parts[np.uint32(i + s * count)]
        rest, n = split(i, cols)
        matrix, m = split(rest, rows)
        outer_at, inner_at = split(matrix, inner)
        if scatter:
            rest, q = split(m, pixels)
            rest, p = split(rest, lines)
            image, d = split(rest, planes)
            at = image * y_image + d * y_plane + p * y_line + q * y_row
            r_at = image * r_image + d * r_plane + p * r_line + q * r_row
        else:
            at, r_at = m * y_row, m * r_row
        if bias:
            total += biases[np.uint32(inner_at * bias_inner + n)]
        if residual:
            total += r[np.uint32(r_at + n)]
        y[np.uint32(outer_at * y_outer + inner_at * y_inner + at + n)] = activate(total, a, b)

    return gemm_join
