"""Builders of what a mixture of experts is made of: products by groups of rows, and counts of them."""

import math
from typing import Any

import numpy as np

from bslite.frontends.common.lazy import load_torch
from bslite.frontends.common.moves import reshape
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.torch.builders import aten
from bslite.frontends.torch.operands import converted, inner
from bslite.frontends.torch.site import Site
from bslite.frontends.torch.values import Const, Operand


@aten("transformers.grouped_mm_fallback")
def grouped_mm(s: Site, x: Operand, weight: Operand, ends: Operand) -> Operand:
    """Rows ``[T, C]`` in the order of their groups, times a matrix ``[E, C, K]`` for each."""
    if not isinstance(weight, Const):
        raise Unsupported("its weight is computed from the input")
    # Layers mostly hold [E, K, C] and give a view of it: turned back, it is that tensor, and not copied.
    turned = s.derived("weight", weight.data.transpose(-2, -1))
    return s.emit("grouped_linear", x, ends, params={"weight": turned})


@aten("_grouped_mm")
def grouped_product(
    s: Site, x: Operand, weight: Operand, ends: Operand | None = None, bias: Any = None, out_dtype: Any = None
) -> Operand:
    """The same of bfloat16, where torch has one for other shapes, too."""
    if ends is None or (x.rank, weight.rank) != (2, 3) or bias is not None or out_dtype is not None:
        raise Unsupported("of other shapes than rows by groups of them, or with a bias or another dtype")
    return grouped_mm(s, x, weight, ends)


@aten("histc")
def histc(s: Site, x: Operand, bins: int = 100, least: float = 0, most: float = 0) -> Operand:
    """How many elements lie in each of ``bins`` equal parts of ``[least, most]``; the last has both ends."""
    if least >= most:
        raise Unsupported("between the least and the greatest element")
    count = math.prod(x.shape)
    line = reshape(s, x, (count, 1), last=False)
    low, high, parts = (s.store.scalar(float(v)) for v in (least, most, bins))
    width = s.store.scalar(float(np.float32(most) - np.float32(least)))
    place = inner(s, "div", inner(s, "mul", inner(s, "sub", line, low), parts), width)
    place = inner(s, "minimum", inner(s, "floor", place), s.store.scalar(float(bins - 1)))
    inside = inner(s, "and", inner(s, "less_equal", low, line), inner(s, "less_equal", line, high))
    numbers = s.derived("bins", load_torch().arange(bins, dtype=load_torch().float32))
    found = inner(s, "and", inner(s, "equal", place, numbers), inside)
    return s.emit("sum", converted(s, found, "float32"), axes=(0,), keepdim=False)


@aten("diff")
def diff(
    s: Site,
    x: Operand,
    n: int = 1,
    axis: int = -1,
    before: Operand | None = None,
    after: Operand | None = None,
) -> Operand:
    """Differences of neighbours along an axis, ``n`` times, of what lies ``before``, x and what lies
    ``after``.
    """
    axis %= x.rank
    parts = [part for part in (before, x, after) if part is not None]

    def sized(size: Any) -> tuple[Any, ...]:
        return (*x.shape[:axis], size, *x.shape[axis + 1 :])

    size = sum(part.shape[axis] for part in parts)
    made: Operand = s.emit("concat", *parts, inner=sized(size), axis=axis) if len(parts) > 1 else x
    unlike = "not_equal" if x.dtype == "bool" else "sub"
    for _ in range(n):
        size -= 1
        later, earlier = (
            s.emit("slice", made, inner=sized(size), axis=axis, start=start, stop=stop)
            for start, stop in ((1, None), (0, -1))
        )
        made = inner(s, unlike, later, earlier)
    return made
