"""The builder of embeddings in bags: rows of a table, summed, averaged or compared bag by bag."""

from typing import Any

from bslite.frontends.common.lazy import load_torch
from bslite.frontends.common.moves import reshape
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.common.values import Value
from bslite.frontends.torch.builders import aten, operation
from bslite.frontends.torch.counting import filled, ones, spread
from bslite.frontends.torch.operands import converted, inner
from bslite.frontends.torch.site import Site
from bslite.frontends.torch.values import Const, Operand

SUM, MEAN, MAX = range(3)  # torch's modes


@aten("embedding_bag")
def embedding_bag(
    s: Site, table: Operand, ids: Operand, offsets: Operand, scale_grad: bool, mode: int, sparse: bool,
    weights: Operand | None = None, include_last_offset: bool = False, padding: int | None = None,
) -> list[Value]:  # fmt: skip
    """ids ``[T]``, of which bag b has those from ``offsets[b]`` on. Bags of one length are an axis."""
    if s.used != [0]:
        raise Unsupported("more than its first result is used")
    if include_last_offset or padding is not None:
        raise Unsupported(f"with include_last_offset={include_last_offset}, padding_idx={padding}")
    (bags, width), count = s.shape, ids.shape[0]
    length = length_of_all(s, offsets, count)
    if length is None:
        rows = weighed(s, s.emit("gather", table, ids, inner=(count, width), axis=0), weights)
        return [scattered(s, rows, numbers(s, offsets, count), mode)]
    ids = reshape(s, ids, (bags, length), last=False)
    rows = s.emit("gather", table, ids, inner=(bags, length, width), axis=0)
    if weights is not None:
        rows = weighed(s, rows, reshape(s, weights, (bags, length), last=False))
    first: dict[str, Any] = {} if mode in (SUM, MEAN) else {"first": True}
    return [s.emit(("sum", "mean", "amax")[mode], rows, axes=(1,), keepdim=False, **first)]


def length_of_all(s: Site, offsets: Operand, count: Any) -> int | None:
    """How many ids each bag has, if the offsets tell beforehand that all have as many."""
    node: Any = s.node.args[2]
    if isinstance(offsets, Const):
        starts = offsets.data.tolist()
        step = count // len(starts) if isinstance(count, int) and starts else 0
        return step if step and starts == list(range(0, count, step)) else None
    bounds: Any = node.args if operation(node) == "arange" else ()
    if len(bounds) == 3 and bounds[0] == 0 and isinstance(bounds[2], int):
        return bounds[2] if bounds[2] * offsets.shape[0] == count else None
    return None


def weighed(s: Site, rows: Value, weights: Operand | None) -> Value:
    """``rows [..., D]``, each times its weight."""
    if weights is None:
        return rows
    return s.emit("mul", rows, reshape(s, weights, (*weights.shape, 1), last=False), inner=rows.shape)


def numbers(s: Site, offsets: Operand, count: Any) -> Value:
    """The bag of each of ``count`` ids ``[count, 1]``: how many bags begin at it or before it, less one."""
    places = reshape(s, converted(s, offsets, "int64"), (*offsets.shape, 1), last=False)
    begin = s.emit(
        "scatter_nd", filled(s, (count + 1,), 0, "int64"), places, ones(s, offsets.shape[0]),
        inner=(count + 1,), reduction="add",
    )  # fmt: skip
    begun = s.emit("cumsum", begin, inner=begin.shape, axis=0)
    begun = s.emit("slice", begun, inner=(count,), axis=0, start=0, stop=-1)
    made: Value = reshape(s, inner(s, "sub", begun, s.store.scalar(1, "int64")), (count, 1), last=False)
    return made


def scattered(s: Site, rows: Value, bags: Value, mode: int) -> Value:
    """``rows [T, D]`` put together by the bag of each; an empty bag is zero."""
    nothing, count = filled(s, s.shape, 0, "float32"), (s.shape[0],)
    if mode == SUM:
        return s.emit("scatter_nd", nothing, bags, rows, reduction="add")
    each = s.emit(
        "scatter_nd", filled(s, count, 0, "int64"), bags, ones(s, rows.shape[0]), inner=count, reduction="add"
    )
    each = reshape(s, each, (*count, 1), last=False)
    if mode == MEAN:
        made = s.emit("scatter_nd", nothing, bags, rows, inner=s.shape, reduction="add")
        some = inner(s, "maximum", each, s.store.scalar(1, "int64"))
        return s.emit("div", made, converted(s, some, "float32"))
    least = spread(s, Const(load_torch().full((1, 1), -float("inf")), "least"), s.shape)
    made = s.emit("scatter_nd", least, bags, rows, inner=s.shape, reduction="max")
    return s.emit("where", inner(s, "equal", each, s.store.scalar(0, "int64")), s.store.scalar(0.0), made)
