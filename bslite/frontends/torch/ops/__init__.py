"""Builders of torch operations, by family.

To support another operation, add a builder to the file of its family. A builder takes a `Site` and the
operation's arguments under the aten schema's defaults, emits bslite ops through the site, and returns the
operation's result.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.common.values import Value
from bslite.frontends.torch.builders import TABLE, aten, operation
from bslite.frontends.torch.ops.buckets import zero_is_discarded
from bslite.frontends.torch.site import Site
from bslite.frontends.torch.values import Operand, kept_as
from bslite.ops import BYTES, INTEGERS
from bslite.registry import load_modules

load_modules(__name__)

if TYPE_CHECKING:
    import torch

__all__ = ["DROPOUTS", "MODULES", "NO_OPS", "TABLE", "is_no_op"]

DROPOUTS = ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
#: Operations that do nothing to values at inference, unless they change the dtype.
NO_OPS = (
    "alias", "clone", "contiguous", "detach", "lift_fresh_copy", "positive",
    "to", "_to_copy", "type_as", "float",
    *DROPOUTS,
    "bslite.packed", "bslite.unpacked", "bslite.whole",
)  # fmt: skip


@aten(*NO_OPS)
def same(s: Site, x: Operand, *args: Any, **kwargs: Any) -> Operand:
    if s.operation.endswith("dropout") and args[1]:
        raise Unsupported("called with training=True")
    made = kept_as(s.node.meta["val"])
    if x.dtype == made:
        stops = s.operation == "detach" and isinstance(x, Value) and made == "float32"
        return s.emit("stop_gradient", x) if stops else x
    if x.dtype == "float32" and made in INTEGERS and zero_is_discarded(s.node):
        infinite = s.emit("equal", x, s.store.scalar(-math.inf), inner=x.shape)
        x = s.emit("where", infinite, s.store.scalar(0.0), x, inner=x.shape)
    if made in BYTES and x.dtype != "bool":
        x = wrapped(s, x, made)
    return s.emit("cast", x, to=made)


def wrapped(s: Site, x: Operand, to: str) -> Operand:
    """Numbers as the bytes that torch makes of them hold them: the lowest 8 bits of whole ones."""
    if x.dtype == to:
        return x
    if x.dtype not in INTEGERS:
        x = s.emit("cast", x, inner=x.shape, to="int32")
    byte = s.emit("and", x, s.store.scalar(255, x.dtype), inner=x.shape)
    if to == "uint8":
        return byte
    sign = s.store.scalar(128, x.dtype)  # of int8, the highest bit
    return s.emit("sub", s.emit("xor", byte, sign, inner=x.shape), sign, inner=x.shape)


def is_no_op(node: "torch.fx.Node") -> bool:
    """Whether ``node`` becomes no layer."""
    if operation(node) not in NO_OPS:
        return False
    source, made = node.args[0].meta.get("val"), node.meta["val"]  # type: ignore[union-attr]
    return source is None or source.dtype == made.dtype


def local_response_norm(s: Site, module: Any, x: Operand) -> Value:
    return s.emit("lrn", x, size=module.size, alpha=module.alpha, beta=module.beta, k=module.k)


#: Modules that torch writes out in small operations and that are one op here, by class.
MODULES: dict[str, Callable[[Site, Any, Operand], Value]] = {
    "torch.nn.modules.normalization.LocalResponseNorm": local_response_norm
}
