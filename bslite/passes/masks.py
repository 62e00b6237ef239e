"""A rule: a known mask of attention that hides no key and adds nothing goes."""

from bslite.ops.attention import OfHeads
from bslite.passes.draft import Draft
from bslite.spec import Node


def mask_of_all(draft: Draft, node: Node) -> bool:
    """Attention, or its gradient by other inputs, with a mask that is all true or all zero, has none."""
    op = node.declaration
    assert isinstance(op, OfHeads)
    roles = op.roles(len(node.inputs), node.attrs)
    if "mask" not in roles or node.attrs.get("by_mask"):
        return False
    place = roles.index("mask")
    mask = draft.nodes.get(node.inputs[place])
    if mask is not None and mask.op in ("repeat_batch", "expand"):
        mask = draft.nodes.get(mask.inputs[0])
    if mask is None or mask.op != "constant":
        return False
    known = draft.param(mask.params["value"])
    if not known.all() if known.dtype == bool else known.any():
        return False
    inputs = tuple(name for i, name in enumerate(node.inputs) if i != place)
    draft.put(Node(node.name, node.op, inputs, attrs=node.attrs))
    return True
