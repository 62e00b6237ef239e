"""Builders of ONNX's reductions, whose axes are an attribute in older opsets and an input in newer ones."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bslite.frontends.onnx.builders import onnx_op
from bslite.frontends.onnx.ops.moves import axes_of, axis_of, reshaped
from bslite.frontends.onnx.site import Site
from bslite.frontends.onnx.values import Operand, Value


def _log_sum_exp(a: Any, **how: Any) -> Any:
    top = np.max(a, **{**how, "keepdims": True}) if a.size else np.float32(0)
    top = np.where(np.isfinite(top), top, 0)
    small = np.log(np.sum(np.exp(a - top), **how))
    return small + (top if how["keepdims"] or not np.ndim(top) else np.squeeze(top, how["axis"]))


def _extreme(function: Any, worst: float) -> Callable[..., Any]:
    """A maximum or minimum; of no elements, ``worst``."""

    def reduce(a: Any, **how: Any) -> Any:
        if a.dtype.kind == "f":
            return function(a, initial=worst, **how)
        if a.dtype.kind == "b":
            return function(a, initial=worst > 0, **how)
        info = np.iinfo(a.dtype)
        return function(a, initial=info.min if worst < 0 else info.max, **how)

    return reduce


#: Operator -> what it computes of known arrays, and the op of bslite.
REDUCTIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "ReduceSum": (np.sum, "sum"),
    "ReduceMean": (np.mean, "mean"),
    "ReduceProd": (np.prod, "prod"),
    "ReduceMax": (_extreme(np.max, -np.inf), "amax"),
    "ReduceMin": (_extreme(np.min, np.inf), "amin"),
    "ReduceSumSquare": (lambda a, **how: np.sum(a * a, **how), "sum_square"),
    "ReduceL1": (lambda a, **how: np.sum(np.abs(a), **how), "l1_norm"),
    "ReduceL2": (lambda a, **how: np.sqrt(np.sum(a * a, **how)), "l2_norm"),
    "ReduceLogSum": (lambda a, **how: np.log(np.sum(a, **how)), "log_sum"),
    "ReduceLogSumExp": (_log_sum_exp, "logsumexp"),
}
UNCHANGED = ("ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin")  # over no axis
#: Opset from which the axes are an input.
AXES_AS_INPUT = {name: 13 if name == "ReduceSum" else 18 for name in REDUCTIONS}


@onnx_op(*REDUCTIONS)
def by_attribute(s: Site, x: Operand, *, axes: Sequence[int] | None, keepdims: int) -> Operand:
    return reduced(s, x, axes, bool(keepdims))


def by_input(
    s: Site, x: Operand, axes: Operand | None = None, *, keepdims: int, noop_with_empty_axes: int
) -> Operand:
    over = None if axes is None else s.ints(axes, "its axes")
    if not over and noop_with_empty_axes:
        return x if s.op_type in UNCHANGED else reduced(s, x, [], bool(keepdims))
    return reduced(s, x, over or None, bool(keepdims))


for _name, _since in AXES_AS_INPUT.items():
    onnx_op(_name, since=_since)(by_input)


def reduced(s: Site, x: Operand, axes: Sequence[int] | None, keepdims: bool) -> Operand:
    """``x`` reduced over ``axes``, all of them if None."""
    function, op = REDUCTIONS[s.op_type]
    over = list(range(x.rank)) if axes is None else sorted(axes_of(axes, x.rank))
    if not isinstance(x, Value):
        return s.compute(lambda a: np.asarray(function(a, axis=tuple(over), keepdims=keepdims), a.dtype), x)
    if not over:  # a scalar, or no axes: the operation on each element alone
        return reshaped(s, s.inner(op, reshaped(s, x, (*x.shape, 1), last=False), axes=(x.rank,)), x.shape)
    if x.dtype == "bool":
        number = s.inner(op, s.inner("cast", x, to="float32"), axes=tuple(over), keepdim=keepdims)
        return s.emit("cast", number, to="bool")
    return s.emit(op, x, axes=tuple(over), keepdim=keepdims)


@onnx_op("ArgMax", "ArgMin")
def arg_extreme(s: Site, x: Operand, *, axis: int, keepdims: int, select_last_index: int = 0) -> Operand:
    """Of integers: where 1 is, of the numbers that are the extreme."""
    op, axis = s.op_type.lower(), axis_of(axis, x.rank)
    if isinstance(x, Value) and x.dtype != "float32":
        extreme = s.inner(f"a{op[3:]}", x, axes=(axis,), keepdim=True)
        x, op = s.inner("cast", s.inner("equal", x, extreme), to="float32"), "argmax"
    return s.emit(op, x, axis=axis, keepdim=bool(keepdims), last=bool(select_last_index))


@onnx_op("CumSum", "CumProd")
def cumulative(s: Site, x: Operand, axis: Operand, *, exclusive: int, reverse: int) -> Operand:
    along = axis_of(int(s.number(axis, "its axis")), x.rank)
    if s.op_type == "CumSum" and not isinstance(x, Value) and not exclusive and not reverse:
        return s.compute(lambda a: np.cumsum(a, along, a.dtype), x)
    return s.emit(s.op_type.lower(), x, axis=along, exclusive=bool(exclusive), reverse=bool(reverse))


@onnx_op("LpNormalization")
def lp_norm(s: Site, x: Operand, *, axis: int, p: int) -> Operand:
    """``x`` over its norm along ``axis``; zeros stay zeros."""
    norm = s.inner("l1_norm" if p == 1 else "l2_norm", x, axes=(axis_of(axis, x.rank),), keepdim=True)
    least = float(np.finfo(np.float32).smallest_subnormal)
    return s.emit("div", x, s.inner("clamp", norm, low=least))
