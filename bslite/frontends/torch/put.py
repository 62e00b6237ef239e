"""A new node in a traced graph."""

from typing import TYPE_CHECKING, Any

from bslite.frontends.common.lazy import load_torch

if TYPE_CHECKING:
    from torch.fx import Node


def put(graph: Any, at: "Node", target: Any, *args: Any) -> "Node":
    """A call of ``target`` where nodes are being inserted, traced, and told to be in the layer of ``at``."""
    torch = load_torch()
    made: Node = graph.call_function(target, args)
    with torch.no_grad():
        value = target(*torch.fx.map_arg(args, lambda n: n.meta["val"]))
    made.meta = {**at.meta, "val": value}
    return made
