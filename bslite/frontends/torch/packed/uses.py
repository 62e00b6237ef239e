"""What an exported graph does with packed sequences."""

from collections.abc import Sequence
from typing import Any

from bslite.frontends.torch.builders import operation

#: Operations that treat each row of packed data for itself.
BY_ROW = (
    "linear", "relu", "tanh", "sigmoid", "gelu", "silu", "elu", "leaky_relu", "hardtanh", "dropout", "add",
    "sub", "mul", "div", "neg", "exp", "embedding", "to", "_to_copy", "clone", "contiguous", "detach",
    "alias", "layer_norm",
)  # fmt: skip


def settle(nodes: Sequence[Any], live: set[Any]) -> None:
    """Tell the check of the lengths where an output keeps all steps: the longest sequence must fill them."""
    for node in nodes:
        if node in live and operation(node) == "bslite.whole":
            lengths = node.args[1]
            lengths.args = (*lengths.args[:4], True)


def misuse(nodes: Sequence[Any], live: set[Any]) -> str:
    """How a graph uses a packed sequence other than row by row; empty if it does not."""

    def of(node: Any) -> str:
        return operation(node) if node.op == "call_function" else node.op

    nodes = [n for n in nodes if n in live]
    rows, parts = {n for n in nodes if of(n) == "bslite.packed"}, ""
    for node in nodes:
        name = of(node)
        if name in ("bslite.batch_sizes", "bslite.permutation"):
            what = "batch_sizes" if name.endswith("sizes") else "sorted_indices"
            parts = f"it uses the {what} of a PackedSequence otherwise than torch's own functions do"
        if not any(n in rows for n in node.all_input_nodes) or name in ("bslite.unpacked", "bslite.packed"):
            continue
        if name == "output":
            return "it returns a PackedSequence, or its data"
        if name not in BY_ROW:
            return f"it uses the data of a PackedSequence in {node.target}"
        rows.add(node)
    return parts
