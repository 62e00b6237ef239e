"""Of which dtypes the factors of a sum of products are in torch.

A bfloat16 module's products are of bfloat16 numbers, but for those of which it widens the factors before.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bslite import ops
from bslite.frontends.common.lazy import load_torch
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.torch.builders import operation
from bslite.frontends.torch.values import Const

if TYPE_CHECKING:
    import torch

    from bslite.frontends.torch.store import Store

#: Operations whose first arguments are factors, and how many; of others all tensors are, or are added.
FIRST = {"scaled_dot_product_attention": 3}


def is_product(op: str) -> bool:
    """Whether ``op`` sums products."""
    return ops.get(op).kind is ops.Kind.CONTRACTION


def factors(node: "torch.fx.Node") -> "set[torch.dtype]":
    """The dtypes of the numbers that a node multiplies. Raises Unsupported where some are of 16 bits, others
    not: torch refuses that, and does not notice it in a trace.
    """
    first = FIRST.get(operation(node))
    read: Sequence[Any] = node.args[:first] if first else node.all_input_nodes
    values = [n.meta.get("val") for n in read if n in node.all_input_nodes]
    found = {x.dtype for x in values if _is_inexact(x)}
    if len(found) > 1 and any(dtype.itemsize == 2 for dtype in found):
        raise Unsupported(f"of {' and '.join(sorted(map(str, found)))}")
    return found


def of_bfloat16(
    store: "Store", node: "torch.fx.Node", op: str, operands: Sequence[Any], sources: Sequence[str]
) -> bool:
    """Whether all factors of a product are bfloat16 in torch: what ``node`` multiplies, and constants that a
    builder made, among the ``operands`` of ``op`` or, as values, its ``sources``.
    """
    first = len(op_reads) if (op_reads := getattr(ops.get(op), "reads", None)) else None
    constants = {x.data.dtype for x in operands[:first] if isinstance(x, Const) and _is_inexact(x.data)}
    of = factors(node) | constants
    return of == {load_torch().bfloat16} and store.wide.isdisjoint(sources[:first])


def _is_inexact(value: Any) -> bool:
    """Whether ``value`` is a tensor of real or complex numbers."""
    return isinstance(value, load_torch().Tensor) and (value.is_floating_point() or value.is_complex())
