"""A new node in a traced graph."""

from typing import TYPE_CHECKING, Any

from bslite.frontends.common.lazy import load_torch
from bslite.frontends.torch.memory import LIES

if TYPE_CHECKING:
    from torch.fx import Node


def put(graph: Any, at: "Node", target: Any, *args: Any, **kwargs: Any) -> "Node":
    """A call of ``target`` where nodes are being inserted, traced, and told to be in the layer of ``at``."""
    torch = load_torch()
    made: Node = graph.call_function(target, args, kwargs)
    with torch.no_grad():
        given, named = torch.fx.map_arg((args, kwargs), lambda n: n.meta["val"])
        value = target(*given, **named)
    made.meta = {**at.meta, "val": value}
    made.meta.pop(LIES, None)
    return made
