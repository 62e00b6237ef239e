"""Operations that take elements by their places in memory (``as_strided``), in a traced graph.

A value of bslite's lies in memory in the order of its axes. One of torch's may lie in another, after a
transposition, say. Such a value is copied into the order that its places are meant in.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from bslite.errors import UnsupportedError
from bslite.frontends.common.lazy import load_torch
from bslite.frontends.torch.builders import operation
from bslite.frontends.torch.graph import targets
from bslite.frontends.torch.memory import memory
from bslite.frontends.torch.ops.strides import takes_own
from bslite.frontends.torch.put import put

if TYPE_CHECKING:
    import torch
    from torch.fx import Node


def in_order(graph: Any) -> None:
    """Have the ``as_strided`` of a traced graph read copies whose axes are in the order of memory, where that
    makes no difference: nothing is written to this memory afterwards. What the graph is given may lie in
    another order at another call.
    """
    nodes: list[Node] = list(graph.nodes)
    written = {memory(x): i for i, n in enumerate(nodes) for x in targets(n)}
    given = {memory(n) for n in nodes if n.op == "placeholder"}
    for i, node in enumerate(nodes):
        if operation(node) != "as_strided" or memory(node) in given or written.get(memory(node), -1) > i:
            continue
        source: Any = node.args[0]
        axes = _in_memory(source.meta["val"])
        if axes is not None:
            torch, aten = load_torch(), load_torch().ops.aten
            plain = torch.contiguous_format  # in whatever order the source lies then
            with graph.inserting_before(node):
                turned = put(graph, node, aten.permute.default, source, axes)
                copied = put(graph, node, aten.clone.default, turned, memory_format=plain)
                node.replace_input_with(source, copied)


def check(nodes: "Iterable[Node]", name: str) -> None:
    """Raise UnsupportedError if ``nodes`` take elements by their places in memory of a tensor that would lie
    there in another order, or take some that are not the tensor's.
    """
    for node in nodes:
        source: Any = node.args[0] if operation(node) == "as_strided" else None
        if source is not None and source.op != "placeholder" and not takes_own(node):
            raise UnsupportedError(f"model {name!r}: its forward takes the strides of {source.name!r}")


def orders(nodes: "Iterable[Node]", tensors: "Sequence[torch.Tensor]") -> list[list[int]]:
    """The axes of each tensor from the farthest apart in memory to the nearest; nothing if no node takes
    elements by their places: what is computed of a tensor lies in memory as that does.
    """
    if not any(operation(n) == "as_strided" for n in nodes):
        return []
    return [order(x) for x in tensors]


def order(tensor: "torch.Tensor") -> list[int]:
    """The axes of more than one position, from the farthest apart in memory to the nearest."""
    return sorted((a for a, n in enumerate(tensor.shape) if n != 1), key=lambda a: -tensor.stride()[a])


def _in_memory(tensor: "torch.Tensor") -> list[int] | None:
    """The axes in the order in which they lie in memory; None if there are elements beside the tensor's."""
    axes = sorted(range(tensor.ndim), key=lambda a: (-_size(tensor.stride(a)), -_size(tensor.shape[a])))
    turned = tensor.permute(axes)
    return axes if turned.is_contiguous() and bool(turned.storage_offset() == 0) else None


def _size(size: Any) -> int:
    """A traced size of the example; 0 for one that values decide."""
    return size if isinstance(size, int) else int(size.node.hint or 0)
