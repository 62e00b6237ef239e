"""Builders of Expand, Tile, Trilu, Pad and Einsum."""

import math
from collections.abc import Sequence

import numpy as np

from bslite.errors import SpecError
from bslite.frontends.common.einsum import einsum as contract
from bslite.frontends.common.unsupported import Varies
from bslite.frontends.common.values import Dims
from bslite.frontends.onnx.builders import onnx_op
from bslite.frontends.onnx.ops.arith import is_known
from bslite.frontends.onnx.ops.moves import axes_of, reshaped
from bslite.frontends.onnx.ops.shapes import checked
from bslite.frontends.onnx.ops.slices import nothing_left
from bslite.frontends.onnx.site import Site
from bslite.frontends.onnx.values import Dim, Operand, Value, fixed
from bslite.spec import Array


@onnx_op("Expand")
def expand(s: Site, x: Operand, shape: Operand) -> Operand:
    if is_known(x, shape):
        return s.compute(_expand, x, shape, view=True)
    return expanded(s, x, s.dims(shape, "its shape"))


def expanded(s: Site, x: Operand, want: Sequence[Dim]) -> Operand:
    """``x`` broadcast together with the shape ``want``."""
    have: Dims = (*(1,) * (len(want) - x.rank), *x.shape)
    want = (*(1,) * (len(have) - len(want)), *want)
    target = [h if w == 1 else w for h, w in zip(have, want, strict=True)]
    if tuple(target) == x.shape:
        return x
    if 0 in target and not any(isinstance(d, tuple) for d in target):
        return s.const(np.zeros([fixed(d, "a size") for d in target], x.dtype))
    if isinstance(x, Value) and isinstance(target[0], tuple) and have[0] == 1:
        like = [i for i in s.store.inputs if i.rank and i.shape[0] == target[0]]
        if like:
            row = reshaped(s, x, have, last=False)
            done = list(target[1:]) == list(have[1:])
            x = (s.emit if done else s.inner)("repeat_batch", row, like[0])
            have = x.shape
            if done:
                return x
    if any(isinstance(t, tuple) and t != h for t, h in zip(target, have, strict=True)):
        raise Varies("it repeats along a free size")
    return s.emit("expand", x, shape=tuple(t if isinstance(t, int) else -1 for t in target))


@onnx_op("Tile", since=6)
def tile(s: Site, x: Operand, repeats: Operand) -> Operand:
    times = s.dims(repeats, "its repeats")
    least = (t if isinstance(t, int) else min(t) for t in times)
    if len(times) != x.rank or min(least, default=1) < 0:
        raise SpecError(f"its repeats {times} do not fit rank {x.rank}")
    if is_known(x, repeats):
        return s.compute(lambda a, n: _tile(s, a, n.reshape(-1).tolist()), x, repeats)
    pairs = list(zip(x.shape, times, strict=True))
    if any(isinstance(t, tuple) for t in times) and all(1 in pair for pair in pairs):
        return expanded(s, x, [t if d == 1 else d for d, t in pairs])
    if 0 in times and isinstance(x, Value):
        return tile(s, nothing_left(s, x, times.index(0)), repeats)
    return s.emit("tile", x, repeats=tuple(s.ints(repeats, "its repeats")))


def _tile(s: Site, a: Array, times: Sequence[int]) -> Array:
    shape = checked(np.array([d * n for d, n in zip(a.shape, times, strict=True)], object))
    if all(n == 1 or d == 1 for d, n in zip(a.shape, times, strict=True)):
        return np.broadcast_to(a, shape)
    s.store.allow(math.prod(shape))
    return np.tile(a, times)


@onnx_op("Trilu")
def trilu(s: Site, x: Operand, k: Operand | None = None, *, upper: int) -> Operand:
    diagonal = 0 if k is None else int(s.number(k, "its k"))
    if not isinstance(x, Value):
        return s.compute(lambda a: (np.triu if upper else np.tril)(a, diagonal), x)
    return s.emit("trilu", x, upper=bool(upper), diagonal=diagonal)


def _expand(a: Array, dims: Array) -> Array:
    return np.broadcast_to(a, np.broadcast_shapes(a.shape, checked(dims)))


@onnx_op("Pad", since=2)
def pad(
    s: Site, x: Operand, pads: Operand | tuple[int, ...], value: Operand | float | None = None,
    axes: Operand | None = None, *, mode: str,
) -> Operand:  # fmt: skip
    over = list(range(x.rank)) if axes is None else axes_of(s.ints(axes, "its axes"), x.rank)
    number = 0.0 if value is None else s.number(value, "its value")
    sizes = s.ints(pads, "its pads")
    if len(sizes) != 2 * len(over):
        raise SpecError(f"its pads {sizes} do not fit {len(over)} axes")
    before, after = [0] * x.rank, [0] * x.rank
    for i, axis in enumerate(over):
        before[axis], after[axis] = sizes[i], sizes[len(over) + i]
    around = (*before, *after)
    if not any(around):
        return x
    if mode != "constant":
        return s.emit("pad", x, pads=around, mode=mode)
    return s.emit("pad", x, pads=around, value=number)


@onnx_op("Einsum")
def einsum(s: Site, *xs: Operand, equation: str) -> Operand:
    made: Operand = contract(s, equation, xs)
    return made
