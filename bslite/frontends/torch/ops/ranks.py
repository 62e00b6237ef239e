"""Builders of the median, of the k-th smallest value, and of places in sorted values."""

import math
from typing import Any

from bslite.frontends.common.moves import reshape
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.common.values import Value
from bslite.frontends.torch.builders import aten
from bslite.frontends.torch.operands import Term, converted, inner, together
from bslite.frontends.torch.ops.reduce import axes_of, kept
from bslite.frontends.torch.ops.repeat import plain
from bslite.frontends.torch.site import Site
from bslite.frontends.torch.values import Operand

MOST = 2**22  # comparisons of values with bounds; torch's binary search is faster beyond


def smallest(s: Site, x: Operand, k: int, axis: int) -> Value:
    """The ``k``-th smallest value along ``axis``, counted from one; NaN is larger than all others."""
    first = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    one = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    places = s.emit("topk", x, inner=first, k=k, axis=axis, largest=False)
    last = s.emit("slice", places, inner=one, axis=axis, start=k - 1, stop=k)
    return s.emit("gather_elements", x, last, inner=one, axis=axis)


def along(s: Site, x: Operand, dim: int | None) -> tuple[Operand, int]:
    """``x`` and the axis; all of x as a line where there is none."""
    if dim is None or not x.shape:
        count = 1
        for size in x.shape:
            plain(size)
            count *= size
        return reshape(s, x, (count,), last=False), 0
    axis = dim % len(x.shape)
    plain(x.shape[axis])
    return x, axis


@aten("kthvalue")
def kthvalue(s: Site, x: Operand, k: int, dim: int = -1, keepdim: bool = False) -> list[Operand | None]:
    if s.used != [0]:
        raise Unsupported("of equal values torch does not say whose index it gives")
    plain(k)
    line, axis = along(s, x, dim)
    found = smallest(s, line, k, axis)
    return [reshape(s, found, kept(x, axes_of(x, dim), keepdim) if x.shape else ())]


@aten("median")
def median(s: Site, x: Operand, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower one of two in the middle; NaN where one value is NaN."""
    if dim is not None and s.used != [0]:
        raise Unsupported("of equal values torch does not say whose index it gives")
    line, axis = along(s, x, dim)
    found = smallest(s, line, (line.shape[axis] + 1) // 2, axis)
    if x.dtype == "float32":  # the largest is NaN if one is
        top = s.emit("amax", line, inner=found.shape, axes=(axis,), keepdim=True)
        found = inner(s, "where", inner(s, "isnan", top), top, found)
    shape = kept(x, axes_of(x, dim), keepdim) if dim is not None and x.shape else ()
    made = reshape(s, found, shape)
    return made if dim is None else [made]


@aten("searchsorted")
def searchsorted(
    s: Site,
    bounds: Operand,
    x: Term,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Operand | None = None,
) -> Operand:
    """How many of the ``bounds``, sorted numbers, are less than x, to the ``right`` no greater; all for NaN.

    Each is compared with each.
    """
    if sorter is not None:
        raise Unsupported("with a sorter")
    bounds, x = together(s, bounds, x)
    shape, above = x.shape, "greater" if right or side == "right" else "greater_equal"
    if len(bounds.shape) > 1:
        bounds = reshape(s, bounds, (*bounds.shape[:-1], 1, bounds.shape[-1]), last=False)
    sizes = (*shape, bounds.shape[-1])
    if all(isinstance(d, int) for d in sizes) and math.prod(sizes) > MOST:
        raise Unsupported(f"{math.prod(shape)} values among {sizes[-1]} bounds")
    each = reshape(s, x, (*shape, 1), last=False)
    passed = converted(s, inner(s, "not", inner(s, above, bounds, each)), "int32" if out_int32 else "int64")
    return s.emit("sum", passed, axes=(len(shape),), keepdim=False)


@aten("bucketize")
def bucketize(s: Site, x: Term, bounds: Operand, *, out_int32: bool = False, right: bool = False) -> Operand:
    return searchsorted(s, bounds, x, out_int32=out_int32, right=right)
