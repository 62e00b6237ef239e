"""Builders of matrix products, norms and softmax."""

import math
from collections.abc import Sequence
from typing import Any

from bslite.frontends.common.moves import permute, reshape
from bslite.frontends.common.norms import normalised_by_batch
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.common.values import Dims, Value
from bslite.frontends.torch.builders import aten
from bslite.frontends.torch.counting import linear_on_rows
from bslite.frontends.torch.ops.arith import scaled
from bslite.frontends.torch.site import Site
from bslite.frontends.torch.values import Const, Operand

#: Differences of one image of a batch of pairs of rows: a megabyte.
LARGEST_DISTANCES = 2**18
DIFFERENCES = 2  # torch's compute_mode of distances that are never taken from products


@aten("linear")
def linear(s: Site, x: Operand, weight: Operand, bias: Operand | None = None) -> Value:
    """A weight or bias that is computed makes it a product and a sum."""
    if any(isinstance(p, Value) for p in (weight, bias)) and x.rank > 1 and weight.rank == 2:
        turned = permute(s, weight, (1, 0), last=False)
        if bias is None:
            return s.emit("matmul", x, turned)
        return s.emit("add", s.emit("matmul", x, turned, inner=s.shape), bias)
    return linear_on_rows(s, x, {"weight": weight, "bias": bias})


@aten("bilinear")
def bilinear(s: Site, x: Operand, y: Operand, weight: Operand, bias: Operand | None = None) -> Value:
    """Of rows x and y, ``x @ weight[k] @ y`` for every k: a linear layer, and a product with y."""
    if isinstance(weight, Value):
        raise Unsupported("its weight is computed from the input")
    out, width, height = weight.shape
    front = s.shape[:-1]
    lines = s.derived("weight", weight.data.transpose(1, 2).reshape(out * height, width))
    made: Operand = s.emit("linear", x, inner=(*front, out * height), params={"weight": lines})
    made = reshape(s, made, (*front, out, height), last=False)
    column = reshape(s, y, (*front, height, 1), last=False)
    made = s.emit("matmul", made, column, inner=(*front, out, 1))
    if bias is None:
        return reshape(s, made, s.shape)
    return s.emit("add", reshape(s, made, s.shape, last=False), bias)


@aten("addmm")
def addmm(s: Site, bias: Operand, x: Operand, weight: Operand, *, beta: float = 1, alpha: float = 1) -> Value:
    plain = beta == alpha == 1
    if plain and isinstance(weight, Const) and isinstance(bias, Const) and bias.shape == weight.shape[1:]:
        return linear(s, x, s.derived("weight", weight.data.t()), bias)
    return plus_product(s, bias, x, weight, beta=beta, alpha=alpha)


@aten("baddbmm")
def plus_product(
    s: Site, bias: Operand, x: Operand, y: Operand, *, beta: float = 1, alpha: float = 1
) -> Value:
    product = scaled(s, s.emit("matmul", x, y, inner=(*x.shape[:-1], y.shape[-1])), alpha)
    return s.emit("add", product, scaled(s, bias, beta) if beta else s.store.scalar(0.0))


@aten("mm", "bmm", "matmul")
def matmul(s: Site, x: Operand, y: Operand) -> Value:
    if isinstance(y, Const) and len(y.shape) == 2:
        return linear(s, x, s.derived("weight", y.data.t()))
    if min(len(x.shape), len(y.shape)) < 2:
        return with_vector(s, x, y)
    return s.emit("matmul", x, y)


@aten("addmv")
def plus_product_by_vector(
    s: Site, bias: Operand, x: Operand, y: Operand, *, beta: float = 1, alpha: float = 1
) -> Value:
    column = s.emit("matmul", x, reshape(s, y, (*y.shape, 1), last=False), inner=(x.shape[0], 1))
    product = scaled(s, reshape(s, column, x.shape[:1], last=False), alpha)
    return s.emit("add", product, scaled(s, bias, beta) if beta else s.store.scalar(0.0))


@aten("mv", "dot", "vdot")
def with_vector(s: Site, x: Operand, y: Operand) -> Value:
    """A vector on the left is a row, one on the right a column."""
    if len(x.shape) == 1:
        x = reshape(s, x, (1, *x.shape), last=False)
    if len(y.shape) == 1:
        y = reshape(s, y, (*y.shape, 1), last=False)
    stack = x.shape[:-2] if len(x.shape) > 2 else y.shape[:-2]
    return reshape(s, s.emit("matmul", x, y, inner=(*stack, x.shape[-2], y.shape[-1])), s.shape)


@aten("batch_norm", "native_batch_norm", "_native_batch_norm_legit")
def batch_norm(
    s: Site, x: Operand, weight: Operand | None, bias: Operand | None, mean: Operand | None,
    var: Operand | None, training: bool, momentum: float, eps: float, *_: Any,
) -> Any:  # fmt: skip
    if training and mean is not None:
        raise Unsupported("it changes the running statistics")
    if mean is None or var is None:
        return s.results(normalised_by_batch(s, x, weight, bias, eps))
    params = {"weight": weight, "bias": bias, "running_mean": mean, "running_var": var}
    return s.results(s.emit("batch_norm", x, params=params, eps=eps))


@aten("bslite.batch_norm")
def batch_norm_in_training(
    s: Site, x: Operand, weight: Operand | None, bias: Operand | None, eps: float
) -> list[Value]:
    """The result and the statistics of the batch; see `bslite.frontends.torch.training`."""
    stats = s.emit("batch_stats", x, inner=(2, x.shape[1]))
    if weight is not None or bias is None:
        affine = [p for p in (weight, bias) if p is not None]
        return [s.emit("batch_norm_given", x, stats, *affine, inner=x.shape, eps=eps, own=True), stats]
    made = s.emit("batch_norm_given", x, stats, inner=x.shape, eps=eps, own=True)
    wide = (x.shape[1], *(1,) * (x.rank - 2))
    return [s.emit("add", made, reshape(s, bias, wide, last=False), inner=x.shape), stats]


@aten("_native_batch_norm_legit_no_training")
def batch_norm_eval(s: Site, x: Operand, w: Any, b: Any, mean: Any, var: Any, *rest: float) -> Any:
    return batch_norm(s, x, w, b, mean, var, False, *rest)


@aten("_native_batch_norm_legit.no_stats")
def batch_norm_no_stats(s: Site, x: Operand, w: Any, b: Any, training: bool, *rest: float) -> Any:
    return batch_norm(s, x, w, b, None, None, training, *rest)


@aten("instance_norm")
def instance_norm(
    s: Site, x: Operand, w: Any, b: Any, mean: Any, var: Any, own: bool, momentum: float, eps: float, *_: Any
) -> Any:
    if not own:
        return batch_norm(s, x, w, b, mean, var, False, momentum, eps)
    return group_norm(s, x, x.shape[1], w, b, eps)


@aten("layer_norm", "native_layer_norm")
def layer_norm(
    s: Site, x: Operand, shape: Sequence[int], weight: Operand | None = None, bias: Operand | None = None,
    eps: float = 1e-5, *_: Any,
) -> Any:  # fmt: skip
    params = {"weight": weight, "bias": bias}
    return s.results(s.emit("layer_norm", x, params=params, normalized_shape=tuple(shape), eps=eps))


@aten("rms_norm")
def rms_norm(
    s: Site, x: Operand, shape: Sequence[int], weight: Operand | None = None, eps: float | None = None
) -> Value:
    """eps: as torch does, the gap between 1 and the next float32 where none is given."""
    eps = 2.0**-23 if eps is None else eps
    return s.emit("rms_norm", x, params={"weight": weight}, normalized_shape=tuple(shape), eps=eps)


@aten("group_norm")
def group_norm(
    s: Site, x: Operand, groups: int, weight: Operand | None = None, bias: Operand | None = None,
    eps: float = 1e-5, *_: Any,
) -> Any:  # fmt: skip
    return s.results(
        s.emit("group_norm", x, params={"weight": weight, "bias": bias}, num_groups=groups, eps=eps)
    )


@aten("native_group_norm")
def native_group_norm(
    s: Site, x: Operand, w: Any, b: Any, n: Any, c: Any, size: Any, groups: int, eps: float
) -> Any:
    return group_norm(s, x, groups, w, b, eps)


@aten("softmax", "log_softmax", "_softmax", "_log_softmax")
def softmax(s: Site, x: Operand, axis: int, dtype: Any = None) -> Value:
    return s.emit(s.operation.removeprefix("_"), x, axis=axis)


def _by_product(s: Site, x: Operand, y: Operand, shape: Dims) -> Value:
    """``sqrt(x^2 + y^2 - 2 x y^T)``; rounding may make a square negative."""
    order = [*range(len(y.shape) - 2), len(y.shape) - 1, len(y.shape) - 2]
    lines, column = (
        s.emit("sum_square", v, inner=(*v.shape[:-1], 1), axes=(len(v.shape) - 1,), keepdim=True)
        for v in (x, y)
    )
    row = permute(s, column, order, last=False)
    product = s.emit("matmul", x, permute(s, y, order, last=False), inner=shape)
    double = s.emit("mul", product, s.store.scalar(-2.0), inner=shape)
    square = s.emit("add", s.emit("add", double, lines, inner=shape), row, inner=shape)
    return s.emit("sqrt", s.emit("relu", square, inner=shape))


@aten("cdist", "_cdist_forward")
def distances(s: Site, x: Operand, y: Operand, p: float = 2, compute_mode: Any = None) -> Value:
    """Norms of the differences of all rows of ``x [..., P, M]`` and ``y [..., R, M]``. Those of many are
    taken from a product, as torch does.
    """
    if p not in (1, 2):
        raise Unsupported(f"with p={p}")
    front = s.shape[:-2]
    (rows, width), columns = x.shape[-2:], y.shape[-2]
    known = [n for n in (rows, width, columns) if isinstance(n, int)]
    if math.prod(known) > LARGEST_DISTANCES:
        if p == 1 or compute_mode == DIFFERENCES:
            raise Unsupported("of many rows")
        return _by_product(s, x, y, (*front, rows, columns))
    first = reshape(s, x, (*x.shape[:-1], 1, width), last=False)
    second = reshape(s, y, (*y.shape[:-2], 1, columns, width), last=False)
    apart = s.emit("sub", first, second, inner=(*front, rows, columns, width))
    return s.emit(f"l{int(p)}_norm", apart, axes=(len(front) + 2,), keepdim=False)
