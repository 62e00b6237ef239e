"""Values computed from sizes left free: ranges, fills, and sizes used as numbers.

A model has no values for sizes. It counts: a line of ones along a free axis, summed, is the size, and its
running sum counts up.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bslite.frontends.common.lazy import load_torch
from bslite.frontends.common.moves import reshape
from bslite.frontends.common.unsupported import Varies
from bslite.frontends.common.values import Dims, Value
from bslite.frontends.torch.site import Site
from bslite.frontends.torch.values import Const, Operand


def ones(s: Site, size: Any) -> Operand:
    """int64 ones ``[size]``; ``size`` is a number, a free size, or a sum or a multiple of such."""
    torch = load_torch()
    if isinstance(size, int) or size.is_Integer:
        return Const(torch.ones(int(size), dtype=torch.int64), f"ones.{int(size)}")
    known = s.store.lines.get(size)
    if known is not None:
        return known
    made = _joined(s, size) if size.is_Add or size.is_Mul else _along(s, size)
    return s.store.lines.setdefault(size, made)


def _along(s: Site, size: Any) -> Value:
    """Ones as many as some value is long along an axis of that size."""
    found = next(((n, shape) for n, shape in s.store.shapes.items() if size in shape), None)
    if found is None or not size.is_Symbol:
        raise Varies(f"a size {size} of no value is needed")
    name, shape = found
    x = Value(name, shape, s.store.dtypes[name])
    axis = shape.index(size)
    for d, length in enumerate(shape):
        if d != axis and length != 1:
            thin = (*x.shape[:d], 1, *x.shape[d + 1 :])
            x = s.emit("slice", x, inner=thin, axis=d, start=0, stop=1)
    x = reshape(s, x, (size,), last=False)
    if x.dtype == "bool":
        x = s.emit("cast", x, inner=(size,), to="int64")
    same, different = (s.emit(op, x, x, inner=(size,)) for op in ("equal", "not_equal"))  # one for NaN
    return s.emit("cast", s.emit("or", same, different, inner=(size,)), inner=(size,), to="int64")


def _joined(s: Site, size: Any) -> Value:
    """Ones for a sum or a multiple of sizes: one line after the other."""
    terms: list[Any] = []
    for term in size.args if size.is_Add else (size,):
        count, rest = term.as_coeff_Mul()
        if term.is_Integer and term > 0:
            terms.append(int(term))
        elif count.is_Integer and count > 0 and rest.is_Symbol:
            terms += [rest] * int(count)
        else:
            raise Varies(f"it needs the size {size}")
    return s.emit("concat", *(ones(s, t) for t in terms), inner=(size,), axis=0)


def number(s: Site, size: Any) -> Operand:
    """A size as an int64 value of rank 0."""
    torch = load_torch()
    if isinstance(size, int) or size.is_Integer:
        return Const(torch.tensor(int(size)), f"scalar.int64.{int(size)}")
    if size.is_Symbol:
        return s.emit("sum", ones(s, size), inner=(), axes=(0,), keepdim=False)
    if not (size.is_Add or size.is_Mul):
        raise Varies(f"it needs the size {size}")
    first, *others = size.args
    made = number(s, first)
    for term in others:
        made = s.emit("add" if size.is_Add else "mul", made, number(s, term), inner=())
    return made


def count(s: Site, size: Any, start: Any = 0) -> Operand:
    """int64 ``start, start + 1, ...``, ``size`` of them."""
    torch = load_torch()
    if isinstance(size, int) and isinstance(start, int):
        return Const(torch.arange(start, start + size), f"range.{start}.{size}")
    if isinstance(size, int):
        line: Operand = Const(torch.arange(size), f"range.0.{size}")
    else:
        line = s.emit("cumsum", ones(s, size), inner=(size,), axis=0)
        start = start - 1
    return s.emit("add", line, number(s, start), inner=(size,)) if start != 0 else line


def filled(s: Site, shape: Dims, value: Any, dtype: str) -> Operand:
    """``value`` everywhere, of a shape with free sizes."""
    torch = load_torch()
    rank = len(shape)
    if _each_image(s, shape) is not None:
        one = s.derived("value", torch.full((1,) * rank, value, dtype=getattr(torch, dtype)))
        return spread(s, one, shape)
    made: Operand | None = None
    for axis, size in enumerate(shape):
        if isinstance(size, int):
            continue
        line = s.emit("sub", ones(s, size), ones(s, size), inner=(size,))
        own = (*(1,) * axis, size, *(1,) * (rank - axis - 1))
        line = reshape(s, line, own, last=False)
        if made is None:
            made = line
        else:
            both = tuple(b if a == 1 else a for a, b in zip(made.shape, own, strict=True))
            made = s.emit("add", made, line, inner=both)
    if made is None:
        return s.derived("value", torch.full(shape, value, dtype=getattr(torch, dtype)))
    if dtype == "bool":
        made = s.emit("equal" if value else "not_equal", made, s.store.scalar(0, "int64"), inner=made.shape)
    else:
        if dtype != "int64":
            made = s.emit("cast", made, inner=made.shape, to=dtype)
        if value:
            made = s.emit("add", made, s.store.scalar(value, dtype), inner=made.shape)
    if made.shape != shape:
        target = [d if isinstance(d, int) else -1 for d in shape]
        made = s.emit("expand", made, inner=shape, shape=target)
    return made


def taken(s: Site, x: Operand, axis: int, start: Any, size: Any, inner: Dims | None = None) -> Operand:
    """``size`` positions along ``axis`` from ``start``, which depend on free sizes."""
    if isinstance(x, Const):
        s.store.bounds.append((start + size, x.shape[axis]))
    return s.emit("gather", x, count(s, size, start), inner=inner, axis=axis)


def spread(s: Site, x: Operand, shape: Dims) -> Operand:
    """``x`` repeated along axes of size one to a shape with free sizes."""
    aligned: Sequence[Any] = (*(1,) * (len(shape) - x.rank), *x.shape)
    free = tuple(1 if have == d or isinstance(d, int) else d for have, d in zip(aligned, shape, strict=True))
    made = tuple(d if f == 1 else f for d, f in zip(aligned, free, strict=True))
    if isinstance(x, Const):
        x = s.derived("value", x.data.reshape(tuple(aligned)))
    x = reshape(s, x, tuple(aligned), last=False)
    like = _each_image(s, free)
    if like is not None:
        x = s.emit("repeat_batch", x, like, inner=made)
    elif any(f != 1 for f in free):
        nothing = filled(s, free, 0, x.dtype)
        x = s.emit("or" if x.dtype == "bool" else "add", x, nothing, inner=made)
    if made == shape:
        return x
    return s.emit("expand", x, inner=shape, shape=[d if isinstance(d, int) else -1 for d in shape])


def _each_image(s: Site, shape: Dims) -> Value | None:
    """A value of as many images as ``shape`` has, if no other of its sizes is free."""
    free = [axis for axis, size in enumerate(shape) if not isinstance(size, int)]
    return s.store.with_batch(shape[0]) if free == [0] else None


def rows(s: Site, x: Value, shape: Dims) -> Operand:
    """``x [N, L, ...]`` as rows ``[N*L, C]``; what they were is noted."""
    front: Any = 1
    if sum(not isinstance(d, int) for d in x.shape) < 2:
        return reshape(s, x, shape)
    for d, size in enumerate(x.shape):
        front = front * size
        if front == shape[0] and 0 < d < x.rank - 1:
            whole: Value = reshape(s, x, (*x.shape[: d + 1], shape[1]), last=False)
            made: Value = reshape(s, whole, shape)
            s.store.unflattened[made.name] = whole
            return made
    return reshape(s, x, shape)


def rows_of(s: Site, x: Any) -> Value | None:
    """What the rows ``x [N*L, C]`` were before a reshape: ``[N, L, C]``.

    A reshape op infers one size, so rows cannot become ``[N, L]`` again where both are free. What works on
    rows works on this value instead.
    """
    return s.store.unflattened.get(x.name) if isinstance(x, Value) else None


def linear_on_rows(s: Site, x: Operand, params: Mapping[str, Operand | None]) -> Value:
    """A linear layer; of rows that are noted, on what they were."""
    before = rows_of(s, x)
    if before is None:
        return s.emit("linear", x, params=params)
    y = s.emit("linear", before, inner=(*before.shape[:-1], s.shape[-1]), params=params)
    made: Value = reshape(s, y, s.shape)
    s.store.unflattened[made.name] = y
    return made
