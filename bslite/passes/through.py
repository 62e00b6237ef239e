"""Gradients of batch norms that go back through the activation behind them, with no pass of its own."""

from bslite.passes.draft import Draft
from bslite.spec import Node

GRADIENTS = ("batch_sums", "batch_norm_grad")


def through_activation(draft: Draft, node: Node) -> bool:
    """Give a gradient of a batch norm the gradient behind the activation, and let it find the one before.

    Where others read the one before, too, it stays.
    """
    behind = draft.nodes.get(node.inputs[0])
    if behind is None or behind.op != "activation_grad" or node.attrs["through"] != "identity":
        return False
    readers = [draft.nodes[name] for name in draft.reading.get(behind.name, {})]
    if behind.name in draft.outputs or any(
        r.op not in GRADIENTS or r.inputs[1] != node.inputs[1] for r in readers
    ):
        return False
    norm = draft.nodes.get(behind.inputs[1])
    if norm is not None and norm.op == behind.attrs["of"]:
        norm = draft.nodes.get(norm.inputs[0])
    if norm is None or norm.op != "scale_shift" or norm.inputs[0] != node.inputs[1]:
        return False
    numbers = norm.inputs[1:] if node.op == "batch_sums" else norm.inputs[2:]
    inputs = (behind.inputs[0], *node.inputs[1:], *numbers)
    draft.put(Node(node.name, node.op, inputs, attrs={**node.attrs, "through": behind.attrs["of"]}))
    return True
