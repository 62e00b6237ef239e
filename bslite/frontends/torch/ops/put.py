"""Builders of index_put, index_add, index_copy and index_fill."""

import math
from collections.abc import Sequence
from typing import Any

from bslite.frontends.common.lazy import load_torch
from bslite.frontends.common.moves import in_front, permute, reshape
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.common.values import Dims
from bslite.frontends.torch.builders import aten
from bslite.frontends.torch.operands import converted, inner
from bslite.frontends.torch.ops.arith import scaled
from bslite.frontends.torch.ops.index import expanded, stacked
from bslite.frontends.torch.site import Site
from bslite.frontends.torch.values import Const, Operand
from bslite.ops import INTEGERS


def put(s: Site, x: Operand, axes: Sequence[int], places: Operand, updates: Operand, add: bool) -> Operand:
    """``x`` with ``updates`` at the coordinates ``places`` along ``axes``; updates have their axes first."""
    order = in_front(axes, x.rank)
    turned = permute(s, x, order, last=False)
    reduction = "add" if add else "none"
    if turned is x:
        return s.emit("scatter_nd", x, places, updates, reduction=reduction)
    made = s.emit("scatter_nd", turned, places, updates, inner=turned.shape, reduction=reduction)
    return s.emit("permute", made, order=[order.index(a) for a in range(len(order))])


def known_places(s: Site, x: Operand, axes: Sequence[int], tensors: Sequence[Operand]) -> Const | None:
    """A mask of the places that known indices name along ``axes``; the other axes have size 1."""
    torch = load_torch()
    if not all(isinstance(i, Const) for i in tensors) or not all(isinstance(x.shape[a], int) for a in axes):
        return None
    mask = torch.zeros([x.shape[a] for a in axes], dtype=torch.bool)
    try:
        mask[tuple(i.data.long() for i in tensors if isinstance(i, Const))] = True
    except IndexError as e:
        raise Unsupported(str(e)) from None
    if list(axes) != sorted(axes):
        mask = mask.permute([sorted(axes).index(a) for a in axes])
    return s.derived("places", mask.reshape([d if a in axes else 1 for a, d in enumerate(x.shape)]))


def counted(s: Site, indices: Sequence[Operand | None]) -> list[Operand | None]:
    """``indices`` with every known condition replaced by indices of its true places, one tensor an axis."""
    made: list[Operand | None] = []
    for i in indices:
        if isinstance(i, Const) and i.dtype == "bool" and i.shape:
            made += [s.derived("places", places) for places in i.data.nonzero(as_tuple=True)]
        else:
            made.append(i)
    return made


@aten("index_put")
def index_put(
    s: Site, x: Operand, indices: Sequence[Operand | None], values: Operand, accumulate: bool = False
) -> Operand:
    """One value at known places, or where a condition holds, becomes ``where``; else `scatter_nd`."""
    indices = counted(s, indices)
    axes = [a for a, i in enumerate(indices) if i is not None]
    tensors = [i for i in indices if i is not None]
    values = converted(s, values, x.dtype)
    one = all(d == 1 for d in values.shape)
    if any(i.dtype == "bool" for i in tensors):
        condition = tensors[0]
        width, behind = len(condition.shape), len(x.shape) - axes[0] - len(condition.shape)
        same = one or len(values.shape) <= behind or values.shape[-behind - 1] == 1
        if len(tensors) > 1 or not same or accumulate:
            raise Unsupported("by a condition: how many elements it takes depends on the data")
        condition = reshape(s, condition, (*condition.shape, *(1,) * behind), last=False)
        if one:
            values = reshape(s, values, (), last=False)
        elif len(values.shape) > behind:  # before the condition's axes, one for all of those, behind them
            place = len(values.shape) - behind
            sizes = (*values.shape[: place - 1], *(1,) * width, *values.shape[place:])
            values = reshape(s, values, sizes, last=False)
        return s.emit("where", condition, values, x)
    if any(i.dtype not in INTEGERS for i in tensors):
        raise Unsupported(f"by {', '.join(i.dtype for i in tensors)}")
    if one and not accumulate:
        mask = known_places(s, x, axes, tensors)
        if mask is not None:
            return s.emit("where", mask, reshape(s, values, (), last=False), x)
    places, shape = stacked(s, tensors)
    rest = tuple(d for a, d in enumerate(x.shape) if a not in axes)
    adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
    before = axes[0] if adjacent else 0  # axes in front of the indexed ones in what torch puts
    values = spread(s, values, (*rest[:before], *shape, *rest[before:]))
    first = in_front(range(before, before + len(shape)), values.rank)
    updates = permute(s, values, first, last=False)
    return put(s, x, axes, places, updates, accumulate)


def spread(s: Site, x: Operand, shape: Dims) -> Operand:
    """``x`` broadcast to ``shape``."""
    if isinstance(x, Const) and x.shape != shape and all(isinstance(d, int) for d in shape):
        return s.derived("values", x.data.expand(shape).contiguous())
    return expanded(s, x, shape)


def along(s: Site, x: Operand, axis: int, index: Operand, source: Operand, add: bool) -> Operand:
    """``source``'s slices along ``axis`` put where ``index`` says."""
    if not x.shape or not index.shape:
        raise Unsupported("of or by a single number")
    axis %= len(x.shape)
    shape = (*index.shape, 1)
    if isinstance(index, Const):
        places: Operand = s.derived("places", index.data.reshape(shape))
    else:
        places = reshape(s, index, shape, last=False)
    updates = permute(s, source, in_front([axis], source.rank), last=False)
    return put(s, x, [axis], places, updates, add)


@aten("index_add")
def index_add(s: Site, x: Operand, axis: int, index: Operand, source: Operand, *, alpha: Any = 1) -> Operand:
    return along(s, x, axis, index, converted(s, scaled(s, source, alpha), x.dtype), True)


@aten("index_copy")
def index_copy(s: Site, x: Operand, axis: int, index: Operand, source: Operand) -> Operand:
    return along(s, x, axis, index, converted(s, source, x.dtype), False)


@aten("index_fill")
def index_fill(s: Site, x: Operand, axis: int, index: Operand, value: Any) -> Operand:
    """``where`` if the index is known, else `scatter_nd` of rows of the value."""
    if not x.shape:
        raise Unsupported("of a single number")
    axis %= len(x.shape)
    filling = converted(s, value, x.dtype)
    mask = known_places(s, x, [axis], [index])
    if mask is not None:
        return s.emit("where", mask, filling, x)
    count = index.shape[0] if index.shape else 1
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    return along(s, x, axis, reshape(s, index, (count,), last=False), spread(s, filling, shape), False)


@aten("masked_scatter")
def masked_scatter(s: Site, x: Operand, mask: Operand, source: Operand) -> Operand:
    """The n-th element of the source where the mask is true for the n-th time."""
    x, count = expanded(s, x, s.shape), math.prod(s.shape)
    line = reshape(s, converted(s, expanded(s, mask, x.shape), "int64"), (count,), last=False)
    place = inner(s, "sub", s.emit("cumsum", line, inner=(count,), axis=0), s.store.scalar(1, "int64"))
    place = inner(s, "maximum", place, s.store.scalar(0, "int64"))  # before the first, none is read
    values = reshape(s, source, (math.prod(source.shape),), last=False)
    taken = s.emit("gather", values, place, inner=(count,), axis=0)
    return s.emit("where", mask, reshape(s, taken, x.shape, last=False), x)
