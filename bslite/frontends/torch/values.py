"""Constants, dtypes and sizes of torch as the builders see them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bslite import ops
from bslite.frontends.common.lazy import load_torch
from bslite.frontends.common.values import Const as AnyConst
from bslite.frontends.common.values import Dims, Value
from bslite.ops import Shape

if TYPE_CHECKING:
    import torch


#: The dtypes that the builders know. Bytes are moved, compared and cast; sums of bytes, which torch wraps,
#: stay in torch.
DTYPES = ops.DTYPES
#: torch's floats of 16 bits. Such values are float32 in bslite, which has each of their numbers; torch gets
#: them rounded.
NARROW = ("bfloat16", "float16")


class Const(AnyConst["torch.Tensor"]):
    """A tensor known now: a parameter, a buffer, or computed from them."""

    @property
    def dtype(self) -> str:
        """The dtype of the value it becomes. A single number of a type that bslite lacks becomes float32, as
        torch promotes it.
        """
        name, inexact = kept_as(self.data), self.data.is_floating_point() or self.data.is_complex()
        return name if name in DTYPES or (inexact and self.data.ndim) else "float32"


@dataclass(frozen=True, eq=False)
class Pairs:
    """Complex numbers. ``parts``: float32 with one more axis, the last, of real and imaginary part (what
    ``torch.view_as_real`` gives).
    """

    parts: Value | Const
    dtype = "complex64"

    @property
    def shape(self) -> Dims:
        return self.parts.shape[:-1]


class RealParts(Pairs):
    """Complex numbers of which only the real parts are made, in ``parts``, because nothing else is read."""

    @property
    def shape(self) -> Dims:
        return self.parts.shape


Operand = Value | Const
Number = int | float


def dtype_name(tensor: "torch.Tensor") -> str:
    """``"float32"`` for torch.float32."""
    return str(tensor.dtype).removeprefix("torch.")


def kept_as(tensor: "torch.Tensor") -> str:
    """The dtype of the value that a tensor becomes, which is one of `DTYPES` if bslite has such values."""
    name = dtype_name(tensor)
    return "float32" if name in NARROW else name


def is_narrow(traced: Any) -> bool:
    """Whether a traced value is a tensor of floats of 16 bits, or has some among its several."""
    values = traced if isinstance(traced, (tuple, list)) else (traced,)
    return any(isinstance(v, load_torch().Tensor) and dtype_name(v) in NARROW for v in values)


def is_complex(traced: Any) -> bool:
    """Whether a traced value is a tensor of complex numbers, or has some among its several."""
    values = traced if isinstance(traced, (tuple, list)) else (traced,)
    return any(isinstance(v, load_torch().Tensor) and v.is_complex() for v in values)


def layout(tensor: "torch.Tensor") -> Dims:
    """The sizes of the value that a traced tensor becomes: those of `Pairs` for complex numbers."""
    return (*dims(tensor), 2) if tensor.is_complex() else dims(tensor)


def dims(tensor: "torch.Tensor") -> Dims:
    """The sizes of a traced tensor: integers, or sympy expressions in the sizes left free."""
    out = []
    for d in tensor.shape:
        expr = d if isinstance(d, int) else d.node.expr
        out.append(int(expr) if isinstance(d, int) or expr.is_Integer else expr)
    return tuple(out)


def expression_of(size: Any) -> Any:
    """A traced size as a sympy expression, a number as it is."""
    if isinstance(size, int):
        return size
    expression = size.node.expr
    return int(expression) if expression.is_Integer else expression


def concrete(sizes: Dims, given: Mapping[Any, int] | int) -> Shape:
    """Traced sizes for given ones: symbol -> size, or one number for all symbols."""

    def number(size: Any) -> int:
        if isinstance(size, int):
            return size
        known = {s: given if isinstance(given, int) else given[s] for s in size.free_symbols}
        return int(substituted(size, known))

    return tuple(map(number, sizes))


def substituted(expression: Any, sizes: Mapping[Any, int]) -> Any:
    """A sympy expression with numbers for some symbols."""
    import sympy

    return expression.xreplace({s: sympy.Integer(n) for s, n in sizes.items()})
