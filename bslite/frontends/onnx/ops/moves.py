"""Builders of reshapes, permutations and concatenation."""

from collections.abc import Sequence

import numpy as np

from bslite.errors import SpecError
from bslite.frontends.common.moves import permute
from bslite.frontends.common.moves import reshape as reshape_value
from bslite.frontends.common.unsupported import Varies
from bslite.frontends.common.values import Dims
from bslite.frontends.onnx.builders import onnx_op
from bslite.frontends.onnx.ops.arith import is_known
from bslite.frontends.onnx.site import Site
from bslite.frontends.onnx.values import Operand, Sizes, Value, at, merge, product
from bslite.spec import Array


def axis_of(axis: int, rank: int) -> int:
    """A non-negative axis."""
    if not -rank <= axis < rank:
        raise SpecError(f"axis {axis} is out of range for rank {rank}")
    return axis % rank


def axes_of(axes: Sequence[int], rank: int) -> list[int]:
    """Non-negative axes, each once."""
    made = [axis_of(a, rank) for a in axes]
    if len(set(made)) != len(made):
        raise SpecError(f"axes {list(axes)} name one twice")
    return made


def reshaped(s: Site, x: Operand, want: Dims, last: bool = True) -> Operand:
    """``x`` in another shape, free sizes left free; the node's result if ``last``."""
    if not isinstance(x, Value):
        return s.compute(lambda a: _fit(s, a, want), x)
    if x.shape == want:
        return x
    if any(isinstance(d, int) and d < 1 for d in want):
        raise SpecError(f"its result {list(want)} is empty or has a negative size")
    before = s.store.flattened.get(x.name, x)
    try:
        made: Operand = reshape_value(s, x, want, last)
    except Varies:
        if before is x:
            raise
        made = before if before.shape == want else reshape_value(s, before, want, last)
    if isinstance(made, Value) and isinstance(before, Value) and _free(made) < _free(before):
        s.store.flattened[made.name] = before
    return made


def _free(x: Value) -> int:
    """How many sizes are free."""
    return sum(not isinstance(d, int) for d in x.shape)


def _fit(s: Site, a: Array, want: Dims) -> Array:
    """A known array reshaped to ``want``, in the first probe whose shape it fills."""
    for i in range(len(s.store.probes)):
        shape = tuple(at(d, i) for d in want)
        if np.prod(shape, dtype=np.int64) == a.size:
            return a.reshape(shape)
    raise SpecError(f"{list(a.shape)} does not fill {list(want)}")


@onnx_op("Reshape", since=5)
def reshape(s: Site, x: Operand, shape: Operand, *, allowzero: int = 0) -> Operand:
    if not isinstance(x, Value):
        return s.compute(lambda a, t: _reshape(a, t, allowzero), x, s.known(shape, "its shape"))
    want = s.dims(shape, "its shape")
    for i, d in enumerate(want):
        if d == 0 and not allowzero:
            if i >= x.rank:
                raise SpecError(f"its shape {want} copies a size that the input {list(x.shape)} lacks")
            want[i] = x.shape[i]
    if want.count(-1) == 1:
        hole = want.index(-1)
        rest = product([d for d in want if d != -1])
        have = product(x.shape)
        if not all(at(rest, i) > 0 and at(have, i) % at(rest, i) == 0 for i in range(len(s.store.probes))):
            raise SpecError(f"the input {list(x.shape)} does not fill {want}")
        want[hole] = merge([at(have, i) // at(rest, i) for i in range(len(s.store.probes))])
    return reshaped(s, x, tuple(want))


def _reshape(a: Array, shape: Array, allowzero: int) -> Array:
    want = [int(d) for d in shape.reshape(-1)]
    if not allowzero:
        want = [a.shape[i] if d == 0 else d for i, d in enumerate(want)]
    return a.reshape(want)


@onnx_op("Flatten")
def flatten(s: Site, x: Operand, *, axis: int) -> Operand:
    if not -x.rank <= axis <= x.rank:
        raise SpecError(f"axis {axis} is out of range for rank {x.rank}")
    axis = axis + x.rank if axis < 0 else axis
    if isinstance(x, Sizes):
        raise Varies("of a size")
    return reshaped(s, x, (product(x.shape[:axis]), product(x.shape[axis:])))


@onnx_op("Squeeze")
def squeeze(s: Site, x: Operand, axes: Operand | tuple[int, ...] | None = None) -> Operand:
    shape = x.shape
    gone = [i for i, d in enumerate(shape) if d == 1]
    if axes is not None:
        gone = axes_of(s.ints(axes, "its axes"), x.rank)
    elif not all(isinstance(d, int) for d in shape):
        raise Varies("it drops every axis of size 1, and a size is free")
    if any(shape[a] != 1 for a in gone):
        raise SpecError(f"it drops axes {gone} of {list(shape)}, which are not all of size 1")
    if not isinstance(x, Value):
        return s.compute(lambda a: a.reshape([d for i, d in enumerate(a.shape) if i not in gone]), x)
    return reshaped(s, x, tuple(d for i, d in enumerate(shape) if i not in gone))


@onnx_op("Unsqueeze")
def unsqueeze(s: Site, x: Operand, axes: Operand | tuple[int, ...]) -> Operand:
    at = s.ints(axes, "its axes")
    rank = x.rank + len(at)
    new = axes_of(at, rank)
    if rank > 32:
        raise SpecError(f"it makes {rank} axes")
    if not isinstance(x, Value):
        return s.compute(lambda a: np.expand_dims(a, tuple(new)), x, view=True)
    sizes = iter(x.shape)
    return reshaped(s, x, tuple(1 if i in new else next(sizes) for i in range(rank)))


@onnx_op("Transpose")
def transpose(s: Site, x: Operand, *, perm: Sequence[int] | None) -> Operand:
    order = list(range(x.rank))[::-1] if perm is None else axes_of(perm, x.rank)
    if len(order) != x.rank:
        raise SpecError(f"its perm {order} does not fit rank {x.rank}")
    return permuted(s, x, order)


def permuted(s: Site, x: Operand, order: Sequence[int], last: bool = True) -> Operand:
    """``x`` with its axes in another order."""
    if not isinstance(x, Value) and list(order) != sorted(order):
        return s.compute(lambda a: np.transpose(a, order), x, view=True)
    made: Operand = permute(s, x, order, last)
    return made


@onnx_op("Concat", since=4)
def concat(s: Site, *xs: Operand, axis: int) -> Operand:
    axis = axis_of(axis, xs[0].rank)
    if is_known(*xs):
        return s.compute(lambda *a: np.concatenate(a, axis), *xs)
    filled = [x for x in xs if isinstance(x, Value) or x.rank != xs[0].rank or 0 not in x.shapes[0]]
    return filled[0] if len(filled) == 1 else s.emit("concat", *filled, axis=axis)


@onnx_op("DepthToSpace")
def depth_to_space(s: Site, x: Operand, *, blocksize: int, mode: str = "DCR") -> Operand:
    n, c, h, w = _image(x)
    b = blocksize
    if b < 1 or not isinstance(c, int) or c % (b * b):
        raise SpecError(f"{c} channels do not make blocks of {b} x {b}")
    if mode == "DCR":
        y = reshaped(s, x, (n, b, b, c // (b * b), h, w), last=False)
        y = permuted(s, y, (0, 3, 4, 1, 5, 2), last=False)
    else:
        y = reshaped(s, x, (n, c // (b * b), b, b, h, w), last=False)
        y = permuted(s, y, (0, 1, 4, 2, 5, 3), last=False)
    return reshaped(s, y, (n, c // (b * b), product([h, b]), product([w, b])))


@onnx_op("SpaceToDepth")
def space_to_depth(s: Site, x: Operand, *, blocksize: int, mode: str = "DCR") -> Operand:
    n, c, h, w = _image(x)
    b = blocksize
    if b < 1 or not (isinstance(h, int) and isinstance(w, int)) or h % b or w % b:
        raise SpecError(f"an image of {h} x {w} has no blocks of {b} x {b}")
    y = reshaped(s, x, (n, c, h // b, b, w // b, b), last=False)
    y = permuted(s, y, (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4), last=False)
    return reshaped(s, y, (n, product([c, b * b]), h // b, w // b))


def _image(x: Operand) -> Dims:
    if x.rank != 4:
        raise SpecError(f"its input has rank {x.rank}, expected 4")
    return x.shape
