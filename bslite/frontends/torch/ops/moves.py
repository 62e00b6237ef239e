"""Builders of views, permutations, slices, concatenation and padding."""

from collections.abc import Sequence
from typing import Any

from bslite.frontends.common.lazy import load_torch
from bslite.frontends.common.moves import permute, reshape
from bslite.frontends.common.unsupported import Unsupported, Varies
from bslite.frontends.common.values import Dims, Value
from bslite.frontends.torch.builders import aten, operation
from bslite.frontends.torch.counting import rows, rows_of, spread, taken
from bslite.frontends.torch.operands import together
from bslite.frontends.torch.site import Site
from bslite.frontends.torch.values import Const, Operand, dims, expression_of

#: Operations that broadcast their operands themselves.
BROADCASTING = (
    *("add", "sub", "rsub", "mul", "div", "pow", "maximum", "minimum", "fmod", "remainder", "where"),
    *("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "bitwise_and", "bitwise_or"),
)


@aten(
    "view", "reshape", "_unsafe_view", "view_as", "reshape_as", "flatten", "unflatten", "unsqueeze", "squeeze"
)
def view(s: Site, x: Operand, *_: Any, **__: Any) -> Operand:
    """Rows that several free sizes became one for may get them back; see `rows_of`."""
    before = rows_of(s, x)
    if before is not None and s.shape[: before.rank - 1] == before.shape[:-1]:
        return reshape(s, before, s.shape)
    if isinstance(x, Value) and len(s.shape) == 2 < x.rank and not isinstance(s.shape[0], int):
        return rows(s, x, s.shape)
    return reshape(s, x, s.shape)


@aten("permute")
def permute_axes(s: Site, x: Operand, order: Sequence[int]) -> Operand:
    return permute(s, x, [d % x.rank for d in order])


@aten("transpose", "swapaxes", "swapdims")
def transpose(s: Site, x: Operand, a: int, b: int) -> Operand:
    order = list(range(x.rank))
    order[a], order[b] = order[b], order[a]
    return permute(s, x, order)


@aten("t")
def t(s: Site, x: Operand) -> Operand:
    return permute(s, x, range(x.rank)[::-1])


@aten("slice")
def slice_(s: Site, x: Operand, axis: int = 0, start: Any = None, stop: Any = None, step: int = 1) -> Operand:
    if s.shape == x.shape:
        return x
    if not all(v is None or isinstance(v, int) for v in (start, stop)):
        return _run(s, x, axis, start or 0, s.shape[axis], step)
    if stop is not None and stop >= 2**62:  # torch's spelling of "to the end"
        stop = None
    return s.emit("slice", x, axis=axis, start=start or 0, stop=stop, step=step)


def _run(
    s: Site, x: Operand, axis: int, start: Any, size: Any, step: int = 1, inner: Dims | None = None
) -> Operand:
    """``size`` positions from ``start``, at least one of which depends on a free size."""
    first = expression_of(start)
    hint = start if isinstance(start, int) else start.node.hint
    if hint is None:
        raise Unsupported("its bounds depend on the data")
    if step != 1 or hint < 0:
        raise Varies("its bounds depend on a free size")
    return taken(s, x, axis % len(x.shape), first, size, inner)


@aten("slice_scatter")
def slice_scatter(
    s: Site, x: Operand, part: Operand, axis: int = 0, start: Any = None, stop: Any = None, step: int = 1
) -> Operand:
    """``x`` with a run of positions along ``axis``, or every few of them, replaced by ``part``."""
    axis %= len(x.shape)
    size, count = x.shape[axis], part.shape[axis]
    if part.shape == x.shape:
        return part
    if not all(isinstance(n, int) for n in (size, count, start or 0, step)):
        raise Varies("along an axis whose size is free")
    first = (start or 0) if (start or 0) >= 0 else max(0, size + start)
    if step != 1:
        return _scattered(s, x, part, axis, range(first, first + count * step, step))
    parts: list[Operand] = []
    for begin, end in ((0, first), (first + count, size)):
        if begin < end:
            shape = (*x.shape[:axis], end - begin, *x.shape[axis + 1 :])
            parts.append(s.emit("slice", x, inner=shape, axis=axis, start=begin, stop=end))
        if begin == 0:
            parts.append(part)
    return s.emit("concat", *parts, axis=axis)


def _scattered(s: Site, x: Operand, part: Operand, axis: int, places: Sequence[int]) -> Operand:
    """``x`` with ``part`` at some places of an axis: both in a row, and from there each where it belongs."""
    size, torch = x.shape[axis], load_torch()
    order = torch.arange(size)
    order[list(places)] = torch.arange(size, size + len(places))
    shape = (*x.shape[:axis], size + len(places), *x.shape[axis + 1 :])
    both = s.emit("concat", x, part, inner=shape, axis=axis)
    return s.emit("gather", both, s.derived("order", order), axis=axis)


@aten("select_scatter")
def select_scatter(s: Site, x: Operand, part: Operand, axis: int, index: Any) -> Operand:
    """``x`` with one position of ``axis`` replaced by ``part``, which lacks the axis."""
    axis %= len(x.shape)
    if not isinstance(index, int):
        raise Varies("its place depends on a free size")
    thin = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    return slice_scatter(s, x, reshape(s, part, thin, last=False), axis, index)


@aten("copy")
def copy(s: Site, x: Operand, source: Operand, *_: Any) -> Operand:
    """The source, which overwrites all of ``x``."""
    if source.shape != s.shape:
        raise Unsupported(f"of {list(source.shape)} into {list(s.shape)}")
    return source


@aten("narrow")
def narrow(s: Site, x: Operand, axis: int, start: Any, length: Any) -> Operand:
    if not (isinstance(start, int) and isinstance(length, int)):
        return _run(s, x, axis, start, s.shape[axis])
    return slice_(s, x, axis, start, start + length if start + length else None)


@aten("select")
def select(s: Site, x: Operand, axis: int, index: Any) -> Operand:
    return _pick(s, x, axis, index, s.shape, last=True)


def _pick(s: Site, x: Operand, axis: int, index: Any, shape: Dims, last: bool) -> Operand:
    """One position of ``axis``, and the axis dropped."""
    axis %= len(x.shape)
    thin = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    if not isinstance(index, int):
        x = _run(s, x, axis, index, 1, inner=thin)
    elif thin != x.shape:
        x = s.emit("slice", x, inner=thin, axis=axis, start=index, stop=index + 1 or None)
    return reshape(s, x, shape, last)


@aten("diagonal", "diagonal_copy", "linalg_diagonal")
def diagonal(s: Site, x: Operand, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Operand:
    """Elements (i, i + offset) of the matrices along two axes, as steps through their flat rows."""
    rank = len(x.shape)
    first, second = dim1 % rank, dim2 % rank
    front = [a for a in range(rank) if a not in (first, second)]
    height, width = x.shape[first], x.shape[second]
    if not isinstance(height, int) or not isinstance(width, int):
        raise Varies("of a matrix whose size is free")
    x = permute(s, x, [*front, first, second], last=False)
    flat = reshape(s, x, (*x.shape[:-2], height * width), last=False)
    start = offset if offset >= 0 else -offset * width
    stop = start + (s.shape[-1] - 1) * (width + 1) + 1
    return s.emit("slice", flat, axis=len(front), start=start, stop=stop, step=width + 1)


@aten("diag")
def diag(s: Site, x: Operand, offset: int = 0) -> Operand:
    """A matrix's diagonal, or the matrix that has a vector there."""
    return diagonal(s, x, offset) if len(x.shape) == 2 else diag_embed(s, x, offset)


@aten("diag_embed")
def diag_embed(s: Site, x: Operand, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Operand:
    """Zeros but for elements (i, i + offset): of rows that are one longer, each begins one further right."""
    lead, rank, length = x.shape[:-1], len(x.shape) + 1, x.shape[-1]
    if not isinstance(length, int):
        raise Varies("of a vector whose size is free")
    apart = reshape(s, x, (*lead, length, 1), last=False)
    filled = _among_zeros(s, apart, [0] * rank, [*[0] * (rank - 1), length])
    flat = reshape(s, filled, (*lead, length * (length + 1)), last=False)
    square = (*lead, length * length)
    flat = s.emit("slice", flat, inner=square, axis=rank - 2, start=0, stop=length * length)
    made = reshape(s, flat, (*lead, length, length), last=False)
    down, right = max(-offset, 0), max(offset, 0)
    made = _among_zeros(s, made, [*[0] * (rank - 2), down, right], [*[0] * (rank - 2), right, down])
    order = [*range(rank - 2)]
    for axis, place in sorted([(dim1 % rank, rank - 2), (dim2 % rank, rank - 1)]):
        order.insert(axis, place)
    return permute(s, made, order)


def _among_zeros(s: Site, x: Operand, before: Sequence[int], after: Sequence[int]) -> Operand:
    if not any((*before, *after)):
        return x
    shape = tuple(a + n + b for a, n, b in zip(before, x.shape, after, strict=True))
    return s.emit("pad", x, inner=shape, pads=(*before, *after), value=0.0, mode="constant")


@aten("index_select")
def index_select(s: Site, x: Operand, axis: int, index: Operand) -> Operand:
    return s.emit("gather", x, index, axis=axis)


@aten("embedding")
def embedding(s: Site, table: Operand, indices: Operand, *_: Any) -> Operand:
    """The padding index and the two flags after it matter to gradients only."""
    return s.emit("gather", table, indices, axis=0)


@aten("chunk", "split", "split_with_sizes", "tensor_split")
def split(s: Site, x: Operand, _: Any, axis: int = 0) -> list[Operand | None]:
    axis %= len(x.shape)
    sizes = [shape[axis] for shape in s.shapes]
    if not all(isinstance(n, int) for n in sizes):
        raise Varies("it splits the batch")
    parts: list[Operand | None] = [None] * len(sizes)
    for i in s.used:
        start = sum(sizes[:i])
        if s.shapes[i] == x.shape:
            parts[i] = x
        else:
            parts[i] = s.emit("slice", x, inner=s.shapes[i], axis=axis, start=start, stop=start + sizes[i])
    return parts


@aten("unbind")
def unbind(s: Site, x: Operand, axis: int = 0) -> list[Operand | None]:
    parts: list[Operand | None] = [None] * len(s.shapes)
    for i in s.used:
        parts[i] = _pick(s, x, axis, i, s.shapes[i], last=False)
    return parts


@aten("cat", "concat", "concatenate")
def cat(s: Site, xs: Sequence[Operand], axis: int = 0) -> Operand:
    given = [x for x in xs if 0 not in x.shape] or xs
    if len({x.dtype for x in given}) > 1:
        given = together(s, *given)
    return given[0] if len(given) == 1 else s.emit("concat", *given, axis=axis)


@aten("stack")
def stack(s: Site, xs: Sequence[Operand], axis: int = 0) -> Operand:
    axis %= len(s.shape)
    thin = (*s.shape[:axis], 1, *s.shape[axis + 1 :])
    return cat(s, [reshape(s, x, thin, last=False) for x in xs], axis)


@aten("constant_pad_nd")
def constant_pad(s: Site, x: Operand, sizes: Sequence[int], value: float | None = 0) -> Operand:
    return pad(s, x, sizes, "constant", value)


@aten("pad")
def pad(
    s: Site, x: Operand, sizes: Sequence[int], mode: str = "constant", value: float | None = None
) -> Operand:
    """torch lists (before, after) from the last axis backwards."""
    if any(not isinstance(n, int) for n in sizes):
        raise Varies(f"by {list(sizes)}: dependent on the batch")
    if not any(sizes):
        return x
    rank = len(x.shape)
    before, after = [0] * rank, [0] * rank
    for i in range(len(sizes) // 2):
        before[rank - 1 - i], after[rank - 1 - i] = sizes[2 * i], sizes[2 * i + 1]
    named = {"replicate": "edge", "circular": "wrap"}.get(mode, mode)
    return s.emit("pad", x, pads=(*before, *after), value=value or 0.0, mode=named)


@aten("expand", "expand_as")
def expand(s: Site, x: Operand, *_: Any, **__: Any) -> Operand:
    """No layer if every reader broadcasts by itself."""
    if x.shape == s.shape or all(_broadcasts(user, s) for user in s.users):
        return x
    aligned = (*(1,) * (len(s.shape) - len(x.shape)), *x.shape)
    free = [i for i, d in enumerate(s.shape) if not isinstance(d, int) and d != aligned[i]]
    if free:
        like = s.store.with_batch(s.shape[0])
        if free != [0] or like is None:
            return spread(s, x, s.shape)
        if isinstance(x, Const):
            x = s.derived("value", x.data.reshape(aligned))
        x = reshape(s, x, aligned, last=False)
        made = (s.shape[0], *aligned[1:])
        x = s.emit("repeat_batch", x, like, inner=None if made == s.shape else made)
        if made == s.shape:
            return x
    return s.emit("expand", x, shape=[d if isinstance(d, int) else -1 for d in s.shape])


def _broadcasts(user: Any, s: Site) -> bool:
    """Whether ``user`` is arithmetic whose other operand already has the shape of its result."""
    if operation(user) == "scaled_dot_product_attention":  # a mask
        return s.node not in user.args[:3] and len(s.shape) == len(user.args[0].meta["val"].shape)
    others = [n for n in user.all_input_nodes if n is not s.node]
    return operation(user) in BROADCASTING and any(
        dims(n.meta["val"]) == dims(user.meta["val"]) for n in others
    )


@aten("pixel_shuffle")
def pixel_shuffle(s: Site, x: Operand, factor: int) -> Operand:
    n, c, h, w = x.shape
    x = reshape(s, x, (n, c // factor**2, factor, factor, h, w), last=False)
    return _regroup(s, x, [0, 1, 4, 2, 5, 3])


@aten("pixel_unshuffle")
def pixel_unshuffle(s: Site, x: Operand, factor: int) -> Operand:
    n, c, h, w = x.shape
    x = reshape(s, x, (n, c, h // factor, factor, w // factor, factor), last=False)
    return _regroup(s, x, [0, 1, 3, 5, 2, 4])


@aten("channel_shuffle", "native_channel_shuffle")
def channel_shuffle(s: Site, x: Operand, groups: int) -> Operand:
    n, c, *image = x.shape
    x = reshape(s, x, (n, groups, c // groups, *image), last=False)
    return _regroup(s, x, [0, 2, 1, *range(3, len(image) + 3)])


def _regroup(s: Site, x: Operand, order: list[int]) -> Operand:
    """Permute, and back to the shape of the operation's result."""
    return reshape(s, permute(s, x, order, last=False), s.shape)
