"""Constants, dtypes and sizes of torch as the builders see them."""

from typing import TYPE_CHECKING

from bslite import ops
from bslite.frontends.common.values import Const as AnyConst
from bslite.frontends.common.values import Dims, Value
from bslite.ops import Shape

if TYPE_CHECKING:
    import torch


#: The dtypes that the builders know; torch's bytes stay in torch.
DTYPES = tuple(t for t in ops.DTYPES if t not in ops.BYTES)


class Const(AnyConst["torch.Tensor"]):
    """A tensor known now: a parameter, a buffer, or computed from them."""

    @property
    def dtype(self) -> str:
        """The dtype of the value it becomes. A single number of a type that bslite lacks becomes float32, as
        torch promotes it.
        """
        name, floating = dtype_name(self.data), self.data.is_floating_point()
        return name if name in DTYPES or (floating and self.data.ndim) else "float32"


Operand = Value | Const
Number = int | float


def dtype_name(tensor: "torch.Tensor") -> str:
    """``"float32"`` for torch.float32."""
    return str(tensor.dtype).removeprefix("torch.")


def dims(tensor: "torch.Tensor") -> Dims:
    """The sizes of a traced tensor: integers, or sympy expressions in the batch, which leave it free."""
    out = []
    for d in tensor.shape:
        expr = d if isinstance(d, int) else d.node.expr
        out.append(int(expr) if isinstance(d, int) or expr.is_Integer else expr)
    return tuple(out)


def concrete(sizes: Dims, batch: int) -> Shape:
    """Traced sizes for one batch."""
    return tuple(
        d if isinstance(d, int) else int(d.subs(dict.fromkeys(d.free_symbols, batch))) for d in sizes
    )
