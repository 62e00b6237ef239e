"""Layers of integers (`bslite.ops.integer`) in place of layers of float32, where numbers are known as scaled
integers: a quantised model written in either way becomes the same products. Where weights alone are integers,
they stay as they are.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from bslite.errors import SpecError
from bslite.frontends.onnx.site import Site
from bslite.frontends.onnx.store import Scaled
from bslite.frontends.onnx.values import Const, Operand, Value
from bslite.spec import Array

LEAST = 1 << 18  # weights from which on their bytes count more than what else a linear layer can be


class Weights(NamedTuple):
    """Weights ``whole * scale``; the scale is a number, or broadcasts."""

    whole: Array
    scale: Array

    def per_row(self, axis: int) -> Array | None:
        """A scale for each index of ``axis``; None if it varies along others."""
        missing = self.whole.ndim - self.scale.ndim
        wide = self.scale.reshape(*(1,) * missing, *self.scale.shape)
        if any(n != 1 for i, n in enumerate(wide.shape) if i != axis):
            return None
        return np.ascontiguousarray(np.broadcast_to(wide.reshape(-1), (self.whole.shape[axis],)))


def paired(s: Site, x: Operand, axis: int, groups: int = 1) -> Value:
    """The whole numbers of a value as pairs, made once."""
    value = s.store.value(x)
    key = (value.name, axis, groups)
    if key not in s.store.paired:
        made = s.store.emit("pairs", f"{value.name}.pairs", [value], axis=axis, groups=groups)
        s.store.paired[key] = made
    return s.store.paired[key]


def whole(s: Site, array: Array, what: str) -> Const:
    """Whole numbers as a parameter, of the narrowest dtype that holds them."""
    few = array.size == 0 or (array.min() >= -128 and array.max() <= 127)
    return s.const(np.ascontiguousarray(array, np.int8 if few else np.int32), what)


def scaled_of(s: Site, x: Operand, w: Operand) -> tuple[Scaled, Weights] | None:
    """Both operands of a product as scaled integers; None unless they are known as that."""
    known = s.store.scaled.get(x.name) if isinstance(x, Value) else None
    weights = s.store.weights.get(id(w.data)) if isinstance(w, Const) else None
    return None if known is None or weights is None else (known, Weights(*weights[:2]))


def by_pairs(groups: int, weight_shape: Any) -> bool:
    """Whether a convolution is better done with pairs of channels: groups of one channel have none."""
    return groups == 1 or weight_shape[1] % 2 == 0


def conv_of_scaled(
    s: Site, op: str, x: Operand, w: Operand, bias: Operand | None, how: Mapping[str, Any]
) -> Operand | None:
    """A convolution of scaled integers, None if it is none: the exact sum, scaled once.

    Without pairs, it is one of float32, of the integers and of weights that hold the scale of both.
    """
    found = scaled_of(s, x, w)
    if found is None:
        return None
    known, weights = found
    scale = weights.per_row(0)
    if scale is None or isinstance(bias, Value):
        return None
    if not by_pairs(how["groups"], w.shape):
        both = known.scale * scale.astype(np.float64).reshape(-1, *(1,) * (w.rank - 1))
        params = {"weight": s.const(np.float32(weights.whole * both), "weight"), "bias": bias}
        plain: Operand = s.emit(op, known.centred, params=params, **how)
        return plain
    params = {
        "weight": whole(s, weights.whole, "whole"), "shift": bias,
        "scale": s.const(np.float32(known.scale) * scale.astype(np.float32), "scale"),
    }  # fmt: skip
    x = paired(s, known.centred, 1, how["groups"])
    made: Operand = s.emit(f"int_{op}", x, params=params, to="float32", **how)
    return made


def linear_of_scaled(
    s: Site, x: Operand, w: Operand, rows: bool, bias: Operand | None = None
) -> Operand | None:
    """``x @ w`` of scaled integers, None if it is none; with ``rows``, ``x @ w.T``."""
    found = scaled_of(s, x, w)
    if found is None or w.rank != 2 or x.rank < 2 or isinstance(bias, Value):
        return None
    known, weights = found
    scale = weights.per_row(0 if rows else 1)
    if scale is None:
        return None
    numbers = weights.whole if rows else weights.whole.T
    if x.shape[-1] != numbers.shape[1]:
        raise SpecError(f"{list(x.shape)} and {list(w.shape)} do not multiply")
    params = {
        "weight": whole(s, numbers, "whole"), "shift": bias,
        "scale": s.const(np.float32(known.scale) * scale.astype(np.float32), "scale"),
    }  # fmt: skip
    x = paired(s, known.centred, -1)
    made: Operand = s.emit("int_linear", x, params=params, to="float32")
    return made


def linear_of_blocks(
    s: Site, x: Operand, w: Operand, rows: bool, bias: Operand | None = None
) -> Operand | None:
    """``x @ w`` with weights of a few bits, None if they are none, or few; with ``rows``, ``x @ w.T``."""
    known = s.store.blocked.get(id(w.data)) if isinstance(w, Const) else None
    if not isinstance(w, Const) or known is None or w.rank != 2 or known[0].numbers.size < LEAST:
        return None
    found = known[0].by_row(rows)
    if found is None or found.block * found.bits % 32 or x.shape[-1] != found.numbers.shape[1]:
        return None
    if found.scale.shape != (len(found.numbers), -(-found.numbers.shape[1] // found.block)):
        return None  # not a scale for each block
    middle, signed = 2 ** (found.bits - 1), found.numbers.dtype.kind == "i"

    def packed(_: Array) -> Array:
        codes = (found.numbers.astype(np.int16) + middle * signed).astype(np.uint8)
        k, c = codes.shape
        codes = np.pad(codes, ((0, 0), (0, -c % found.block))).reshape(k, -1, found.block)
        return np.ascontiguousarray(codes if found.bits == 8 else codes[..., ::2] | codes[..., 1::2] << 4)

    key = ("blocks", rows)
    params: dict[str, Operand | None] = {
        "weight": s.derived(w, "weight", key, packed),
        "scale": s.const(np.ascontiguousarray(found.scale), "scale"),
        "bias": bias,
    }
    zero = np.broadcast_to(found.zero.astype(np.float32) + np.float32(middle * signed), found.scale.shape)
    if (zero != middle).any():
        params["zero"] = s.const(np.ascontiguousarray(zero), "zero")
    made: Operand = s.emit("block_linear", x, params=params, bits=found.bits)
    return made
