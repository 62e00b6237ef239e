"""Where in the user's model an operation was called: ``layer1.0.conv1``, or ``layer1.0.add``."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch


class Call(NamedTuple):
    """One call of one module: a key that tells repeated calls apart, the module's path and class."""

    key: str
    path: str
    kind: str


def call_of(node: "torch.fx.Node") -> Call:
    """The innermost module call that ``node`` was traced in; empty where torch recorded none."""
    stack = node.meta.get("nn_module_stack") or {}
    for key, (path, kind) in reversed(stack.items()):
        if not path.startswith("_empty_nn_module_stack"):
            kind = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
            # Dynamo writes L['self'].conv for what torch.export calls conv.
            return Call(key, re.sub(r"@\d+|^L\['\w+'\]\.?", "", path), kind)
    return Call("", "", "")


class Names:
    """Names for the layers of ``module`` made from ``nodes``, the operations that become layers."""

    def __init__(self, module: "torch.nn.Module", nodes: "Iterable[torch.fx.Node]") -> None:
        self.operations = Counter(call_of(node).key for node in nodes)
        # Parametrizations compute weights, not activations: they do not make a layer a container.
        self.leaves = {
            path
            for path, m in module.named_modules(remove_duplicate=False)
            if all(child == "parametrizations" for child, _ in m.named_children())
        }

    def layer(self, node: "torch.fx.Node", op: str) -> str:
        """The module's path if it has no submodules and does nothing but ``node``, else path and ``op``."""
        key, path, _ = call_of(node)
        if path and path in self.leaves and self.operations[key] == 1:
            return path
        return self.part(node, op)

    def part(self, node: "torch.fx.Node", op: str) -> str:
        """The module's path and ``op``."""
        path = call_of(node).path
        return f"{path}.{op}" if path else op
