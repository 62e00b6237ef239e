"""Builders of gather, scatter, indexing by tensors, topk, sort and one_hot."""

from collections.abc import Sequence
from typing import Any

from bslite.frontends.common.lazy import load_torch
from bslite.frontends.common.moves import in_front, permute, reshape
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.common.values import Dims, Value
from bslite.frontends.torch.builders import aten, operation
from bslite.frontends.torch.counting import filled, spread
from bslite.frontends.torch.operands import broadcast
from bslite.frontends.torch.ops.repeat import plain
from bslite.frontends.torch.site import Site
from bslite.frontends.torch.values import Const, Operand, dims
from bslite.ops import INTEGERS


@aten("gather")
def gather(s: Site, x: Operand, axis: int, index: Operand, *, sparse_grad: bool = False) -> Operand:
    return s.emit("gather_elements", x, index, axis=axis)


@aten("take_along_dim")
def take_along_dim(s: Site, x: Operand, index: Operand, axis: int | None = None) -> Operand:
    if axis is None:
        raise Unsupported("of a flattened tensor")
    axis %= len(x.shape)
    x, index = (expanded(s, v, (*s.shape[:axis], v.shape[axis], *s.shape[axis + 1 :])) for v in (x, index))
    return s.emit("gather_elements", x, index, axis=axis)


@aten("unfold")
def unfold(s: Site, x: Operand, axis: int, size: int, step: int) -> Operand:
    """Windows of ``size`` positions along ``axis``, ``step`` apart; what is in them goes last."""
    if not x.shape:
        raise Unsupported("of a single number")
    axis %= len(x.shape)
    plain(size, step, x.shape[axis])
    torch = load_torch()
    starts = torch.arange(0, x.shape[axis] - size + 1, step)
    places = s.derived("windows", starts[:, None] + torch.arange(size))
    made = (*x.shape[:axis], *places.shape, *x.shape[axis + 1 :])
    if axis == len(x.shape) - 1:
        return s.emit("gather", x, places, axis=axis)
    order = [a for a in range(len(made)) if a != axis + 1]
    return permute(s, s.emit("gather", x, places, inner=made, axis=axis), [*order, axis + 1])


def expanded(s: Site, x: Operand, shape: Dims) -> Operand:
    """``x`` broadcast to ``shape``."""
    if x.shape == shape:
        return x
    aligned = (*(1,) * (len(shape) - len(x.shape)), *x.shape)
    target = [-1 if d == have else d for d, have in zip(shape, aligned, strict=True)]
    if not all(isinstance(d, int) for d in target):
        return spread(s, x, shape)
    return s.emit("expand", reshape(s, x, aligned, last=False), inner=shape, shape=target)


@aten("index.Tensor")
def index(s: Site, x: Operand, indices: Sequence[Operand | None]) -> Operand:
    """One index tensor becomes a gather. The axes of several go to the front, for gather_nd."""
    places = [a for a, i in enumerate(indices) if i is not None]
    tensors = [i for i in indices if i is not None]
    if any(i.dtype not in INTEGERS for i in tensors):
        raise Unsupported("by a condition: the size of the result depends on the data")
    if len(places) == 1:
        return s.emit("gather", x, tensors[0], axis=places[0])
    if places == [0, 1] and (found := of_each_row(s, x, *tensors)) is not None:
        return s.emit("gather", x, found, axis=1)
    joined, shape = stacked(s, tensors)
    x = permute(s, x, in_front(places, x.rank), last=False)
    made = (*shape, *x.shape[len(places) :])
    adjacent = places == list(range(places[0], places[0] + len(places)))
    if not adjacent or places[0] == 0:
        return s.emit("gather_nd", x, joined)
    y = s.emit("gather_nd", x, joined, inner=made)
    front = range(len(shape), len(shape) + places[0])  # the axes that stood before the indexed ones
    back = range(len(shape) + places[0], len(made))
    return s.emit("permute", y, order=[*front, *range(len(shape)), *back])


def of_each_row(s: Site, x: Operand, rows: Operand, index: Operand) -> Operand | None:
    """``index`` for a gather along axis 1 of ``x``, if ``rows`` are all rows of x in order, along an axis in
    front of those that ``index`` has; else None.
    """
    rank, size = len(rows.shape), x.shape[0]
    arguments: Any = s.node.args
    if counts_to(arguments[1][0]) != size or tuple(rows.shape) != (size, *(1,) * (rank - 1)):
        return None
    shape = (*(1,) * (rank - len(index.shape)), *index.shape)
    if len(shape) != rank or shape[0] != 1:
        return None
    if isinstance(index, Const):
        return s.derived("indices", index.data.reshape(tuple(shape[1:])))
    return reshape(s, index, shape[1:], last=False)


def counts_to(node: Any) -> Any:
    """How many numbers from zero up a node of a graph makes, in whatever shape; None if it makes others."""
    while operation(node) in ("unsqueeze", "view", "reshape", "slice"):
        source = node.args[0]
        if operation(node) == "slice" and dims(node.meta["val"]) != dims(source.meta["val"]):
            return None
        node = source
    bounds: Any = node.args if operation(node) == "arange" else ()
    plain_range = len(bounds) == 1 or (len(bounds) == 2 and bounds[0] == 0)
    return dims(node.meta["val"])[0] if plain_range else None


def stacked(s: Site, tensors: Sequence[Operand]) -> tuple[Operand, Dims]:
    """Index tensors broadcast together, as coordinates along a last axis; and their common shape."""
    torch = load_torch()
    if all(isinstance(i, Const) for i in tensors):
        known = torch.broadcast_tensors(*(i.data for i in tensors if isinstance(i, Const)))
        return s.derived("indices", torch.stack(known, -1)), tuple(known[0].shape)
    shape = broadcast(*tensors)
    parts = [reshape(s, expanded(s, i, shape), (*shape, 1), last=False) for i in tensors]
    joined = s.emit("concat", *parts, inner=(*shape, len(parts)), axis=len(shape))
    return joined, shape


REDUCTIONS = {
    "": "none", "sum": "add", "prod": "mul", "amax": "max", "amin": "min", "add": "add", "multiply": "mul",
}  # fmt: skip


@aten("scatter.src", "scatter_add", "scatter_reduce.two", "scatter.reduce")
def scatter(
    s: Site, x: Operand, axis: int, index: Operand, source: Operand, reduce: str = "", *,
    include_self: bool = True,
) -> Operand:  # fmt: skip
    """torch reads only as much of the source as there are indices."""
    if s.operation == "scatter_add":
        reduce = "add"
    if reduce not in REDUCTIONS and (reduce != "mean" or x.dtype != "float32"):
        raise Unsupported(f"reduce={reduce!r} of {x.dtype}")
    for a, (want, have) in enumerate(zip(index.shape, source.shape, strict=True)):
        if want != have:
            plain(want)
            shape = (*source.shape[:a], want, *source.shape[a + 1 :])
            source = s.emit("slice", source, inner=shape, axis=a, start=0, stop=want)

    def put(target: Operand, updates: Operand, reduction: str, last: bool = False) -> Value:
        shape = None if last else target.shape
        return s.emit("scatter_elements", target, index, updates, inner=shape, axis=axis, reduction=reduction)

    if reduce == "mean":
        ones = [filled(s, t.shape, 1, "float32") for t in (x, index)]
        count = ones[0] if include_self else put(ones[0], filled(s, index.shape, 0, "float32"), "none")
        start = x if include_self else put(x, filled(s, index.shape, 0, "float32"), "none")
        return s.emit("div", put(start, source, "add"), put(count, ones[1], "add"))
    if not include_self:
        x = put(x, filled(s, index.shape, _neutral(reduce, x.dtype), x.dtype), "none")
    return put(x, source, REDUCTIONS[reduce], last=True)


def _neutral(reduce: str, dtype: str) -> Any:
    """What changes nothing in a reduction."""
    if reduce in ("sum", "prod"):
        return int(reduce == "prod")
    torch = load_torch()
    if dtype == "float32":
        return float("-inf" if reduce == "amax" else "inf")
    info = torch.iinfo(torch.int32)  # what bslite computes with
    return info.min if reduce == "amax" else info.max


@aten("scatter.value")
def scatter_value(s: Site, x: Operand, axis: int, index: Operand, value: float) -> Operand:
    source = filled(s, index.shape, value, x.dtype)
    return s.emit("scatter_elements", x, index, source, axis=axis)


@aten("topk")
def topk(
    s: Site, x: Operand, k: Any, axis: int = -1, largest: bool = True, sorted: bool = True
) -> list[Operand | None]:
    plain(k)
    return _ordered(s, x, k, axis, largest)


@aten("sort")
def sort(
    s: Site, x: Operand, dim: int = -1, descending: bool = False, *, stable: bool | None = None
) -> list[Operand | None]:
    plain(x.shape[dim])
    return _ordered(s, x, x.shape[dim], dim, descending)


@aten("msort")
def msort(s: Site, x: Operand) -> Operand | None:
    """The values along axis 0 in order."""
    plain(x.shape[0] if x.shape else ())
    places: Value = s.emit("topk", x, inner=x.shape, k=x.shape[0], axis=0, largest=False)
    return s.emit("gather_elements", x, places, axis=0)


@aten("argsort")
def argsort(s: Site, x: Operand, dim: int = -1, descending: bool = False, *, stable: bool = False) -> Operand:
    plain(x.shape[dim])
    return s.emit("topk", x, k=x.shape[dim], axis=dim, largest=descending)


def _ordered(s: Site, x: Operand, k: int, axis: int, largest: bool) -> list[Operand | None]:
    """The values and indices of the ``k`` first elements in order."""
    if not x.shape:
        raise Unsupported("of a single number")
    places: Value = s.emit("topk", x, inner=s.shapes[1], k=k, axis=axis, largest=largest)
    values = s.emit("gather_elements", x, places, inner=s.shapes[0], axis=axis) if 0 in s.used else None
    return [values, places]


@aten("one_hot")
def one_hot(s: Site, x: Operand, classes: int = -1) -> Operand:
    plain(classes)
    if classes < 1:
        raise Unsupported("the number of classes depends on the data")
    return s.emit("one_hot", x, depth=classes, axis=-1, to="int64", strict=True)


@aten("nonzero", "nonzero_numpy", "argwhere", "masked_select", "_unique2", "unique_consecutive")
def sized_by_data(s: Site, *_: Any, **__: Any) -> Operand:
    raise Unsupported("the size of its result depends on the data")
