"""Builders of reductions: sums, means, extremes and their places, norms, moments, running sums."""

from typing import Any

from bslite.frontends.common.unsupported import Unsupported, Varies
from bslite.frontends.common.values import Dims, Value
from bslite.frontends.torch.builders import aten
from bslite.frontends.torch.operands import converted, inner
from bslite.frontends.torch.site import Site
from bslite.frontends.torch.values import Operand, kept_as


def axes_of(x: Operand, dim: Any) -> tuple[int, ...]:
    """torch's ``dim``, None or empty for all axes, as numbers from zero."""
    given = [dim] if isinstance(dim, int) else dim or range(len(x.shape))
    return tuple(sorted(axis % len(x.shape) for axis in given)) if x.shape else ()


def kept(x: Operand, axes: tuple[int, ...], keepdim: bool) -> Dims:
    """The shape that remains."""
    if keepdim:
        return tuple(1 if i in axes else d for i, d in enumerate(x.shape))
    return tuple(d for i, d in enumerate(x.shape) if i not in axes)


def reduced(s: Site, op: str, x: Operand, dim: Any, keepdim: bool, last: bool = True, **attrs: Any) -> Value:
    """One reduction. A single number is reduced as a vector of one."""
    axes = axes_of(x, dim)
    shape = kept(x, axes, keepdim)
    if not x.shape:
        x, axes = s.emit("reshape", x, inner=(1,), shape=(1,)), (0,)
    return s.emit(op, x, inner=None if last else shape, axes=axes, keepdim=keepdim and shape != (), **attrs)


@aten("mean")
def mean(s: Site, x: Operand, dim: Any = None, keepdim: bool = False, **_: Any) -> Operand:
    """The mean over the pixels of an image becomes a global average pool."""
    if len(x.shape) == 4 and axes_of(x, dim) == (2, 3):
        pixel = (*x.shape[:2], 1, 1)
        if keepdim:
            return s.emit("adaptive_avg_pool2d", x, output_size=1)
        pooled = s.emit("adaptive_avg_pool2d", x, inner=pixel, output_size=1)
        return s.emit("flatten", pooled, start_axis=1, end_axis=-1)
    return reduced(s, "mean", converted(s, x, "float32"), dim, keepdim)


@aten("sum", "prod")
def in_result_dtype(s: Site, x: Operand, dim: Any = None, keepdim: bool = False, **_: Any) -> Operand:
    return reduced(s, s.operation, converted(s, x, kept_as(s.node.meta["val"])), dim, keepdim)


@aten("amax", "amin", "logsumexp")
def same_name(s: Site, x: Operand, dim: Any = None, keepdim: bool = False) -> Operand:
    return reduced(s, s.operation, x, dim, keepdim)


@aten("max", "min")
def extreme_of_all(s: Site, x: Operand) -> Operand:
    return reduced(s, f"a{s.operation}", x, None, False)


@aten("max.other", "min.other")
def extreme_of_two(s: Site, x: Operand, y: Operand) -> Operand:
    return s.emit({"max": "maximum", "min": "minimum"}[s.operation], x, y)


@aten("max.dim", "min.dim")
def extreme_and_place(s: Site, x: Operand, dim: int, keepdim: bool = False) -> list[Operand | None]:
    results: list[Operand | None] = [None, None]
    if 0 in s.used:
        results[0] = reduced(s, f"a{s.operation}", x, dim, keepdim, last=False, first=True)
    if 1 in s.used:
        shape = kept(x, axes_of(x, dim), keepdim)
        results[1] = place_of(s, f"arg{s.operation}", x, dim, keepdim, shape)
    return results


@aten("any", "all", "_is_any_true", "_is_all_true")
def any_or_all(s: Site, x: Operand, dim: Any = None, keepdim: bool = False) -> Operand:
    op = "amax" if "any" in s.operation else "amin"
    return reduced(s, op, converted(s, x, "bool"), dim, keepdim)


@aten("linalg_vector_norm")
def vector_norm(
    s: Site, x: Operand, order: float = 2, dim: Any = None, keepdim: bool = False, **_: Any
) -> Operand:
    if order in (1, 2):
        return reduced(s, f"l{int(order)}_norm", x, dim, keepdim)
    zero = s.store.scalar(0.0)
    if order == 0:
        return reduced(s, "sum", converted(s, inner(s, "not_equal", x, zero), "float32"), dim, keepdim)
    size = s.emit("abs", x, inner=x.shape)
    if abs(order) == float("inf"):
        return reduced(s, "amax" if order > 0 else "amin", size, dim, keepdim)
    powers = (
        _but_at_zero(s, size, order, last=False)
        if order < 1
        else inner(s, "pow", size, s.store.scalar(order))
    )
    total = reduced(s, "sum", powers, dim, keepdim, last=False)
    return _but_at_zero(s, total, 1 / order)


def _but_at_zero(s: Site, x: Operand, power: float, last: bool = True) -> Value:
    """``x`` to a power below 1, of which the slope at 0 is infinite: here it is 0 there, as that of norms."""
    zero = s.store.scalar(0.0)
    at = inner(s, "equal", x, zero)
    made = inner(s, "pow", inner(s, "where", at, s.store.scalar(1.0), x), s.store.scalar(power))
    none = s.store.scalar(0.0 if power > 0 else float("inf"))
    return s.emit("where", at, none, made, inner=None if last else x.shape)


@aten("norm")
def norm(s: Site, x: Operand, order: Any = 2, dim: Any = None, keepdim: bool = False, **_: Any) -> Operand:
    return vector_norm(s, x, 2 if order is None else order, dim, keepdim)


def corrected(dim: Any, unbiased: bool | None, correction: Any) -> tuple[Any, float]:
    """The axes and the correction of a variance in any of torch's overloads. ``unbiased``, the older word for
    a correction of 1, may come first.
    """
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None:
        correction = unbiased
    return dim, 1.0 if correction is None else float(correction)


@aten("var", "std", "var_mean", "std_mean")
def moments(
    s: Site, x: Operand, dim: Any = None, unbiased: bool | None = None, keepdim: bool = False, *,
    correction: Any = None,
) -> Operand | list[Operand | None]:  # fmt: skip
    op = s.operation.removesuffix("_mean")
    axes, less = corrected(dim, unbiased, correction)
    if op == s.operation:
        return reduced(s, op, x, axes, keepdim, correction=less)
    results: list[Operand | None] = [None, None]
    if 0 in s.used:
        results[0] = reduced(s, op, x, axes, keepdim, last=False, correction=less)
    if 1 in s.used:
        results[1] = reduced(s, "mean", x, axes, keepdim, last=False)
    return results


@aten("argmax", "argmin")
def place(s: Site, x: Operand, dim: int | None = None, keepdim: bool = False) -> Operand:
    return place_of(s, s.operation, x, dim, keepdim, None)


def place_of(s: Site, op: str, x: Operand, dim: int | None, keepdim: bool, shape: Dims | None) -> Operand:
    """Where the extreme is. Of integers and bools: where 1 is first, of the numbers that are the extreme."""
    if x.dtype != "float32" and x.shape:
        axes = axes_of(x, dim)
        value = s.emit(f"a{op[3:]}", x, inner=kept(x, axes, True), axes=axes, keepdim=True)
        x, op = converted(s, inner(s, "equal", x, value), "float32"), "argmax"
    return s.emit(op, x, inner=shape, axis=dim, keepdim=keepdim)


@aten("cummax", "cummin")
def running_extreme(s: Site, x: Operand, dim: int) -> list[Operand | None]:
    """The extreme of twice as many positions, step by step. Of equals the later one is the extreme."""
    if s.used != [0]:
        raise Unsupported("of which places are read")
    if not x.shape:
        return [x, None]
    axis, op = dim % len(x.shape), {"cummax": "maximum", "cummin": "minimum"}[s.operation]
    size, shift = x.shape[axis], 1
    if not isinstance(size, int):
        raise Varies("along an axis whose size is free")

    def run(start: int, stop: int) -> Value:
        shape = (*x.shape[:axis], stop - start, *x.shape[axis + 1 :])
        return s.emit("slice", x, inner=shape, axis=axis, start=start, stop=stop)

    while shift < size:
        later = inner(s, op, run(shift, size), run(0, size - shift), first=True)
        x, shift = s.emit("concat", run(0, shift), later, inner=x.shape, axis=axis), 2 * shift
    return [x, None]


@aten("cumsum", "cumprod")
def cumulative(s: Site, x: Operand, dim: int, *, dtype: Any = None) -> Operand:
    return s.emit(s.operation, converted(s, x, kept_as(s.node.meta["val"])), axis=dim)
