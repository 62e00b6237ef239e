"""Rule: a convolution makes only the pixels that a slice keeps.

A convolution that must not see what comes later is often padded at both ends and cut at the end (temporal
convolutional networks, arXiv 1803.01271); a transposed one is cut where windows overlap the ends (EnCodec,
arXiv 2210.13438).
"""

from bslite.ops import Kind
from bslite.passes.draft import Draft
from bslite.passes.families import CONVS, TRANSPOSED
from bslite.spec import Node


def slice_into_convolution(draft: Draft, node: Node) -> bool:
    """A slice of a convolution's pixels is a convolution with less padding, or with longer strides; of a
    transposed one, one with more padding, which is cut off. Batch norms and activations in between follow it.
    """
    between: list[Node] = []  # from the slice up
    conv = draft.alone(node.inputs[0])
    while conv is not None and conv.declaration.kind in (Kind.POINTWISE, Kind.CHANNEL):
        between.append(conv)
        conv = draft.alone(conv.inputs[0]) if len(conv.inputs) == 1 else None
    if conv is None or conv.op not in (*CONVS, *TRANSPOSED):
        return False
    attrs = _cut(draft, conv, node)
    if attrs is None:
        return False
    chain = [conv, *reversed(between)]
    names = [*(f"{n.name}/cut" for n in chain[:-1]), node.name]
    made = [Node(names[0], conv.op, conv.inputs, conv.params, attrs)]
    for n, name in zip(chain[1:], names[1:], strict=True):
        made.append(Node(name, n.op, (made[-1].name,), n.params, n.attrs))
    draft.put(made[-1], *made[:-1])
    return True


def _cut(draft: Draft, conv: Node, node: Node) -> dict[str, object] | None:
    """The attributes of a convolution that makes what the slice ``node`` keeps of ``conv``'s pixels, if there
    is one at any size.
    """
    axis, step = node.attrs["axis"] % len(draft.shape(conv.name)), node.attrs["step"]
    if axis < 2 or step < 1 or (step > 1 and conv.op in TRANSPOSED):
        return None
    left_out = draft.left_out(node)
    if left_out is None:
        return None
    (before, after), i = left_out, axis - 2
    stride, padding = list(conv.attrs["stride"]), list(conv.attrs["padding"])
    by = 1 if conv.op in TRANSPOSED else -stride[i]
    padding[i] += by * before
    padding[len(stride) + i] += by * after
    stride[i] *= step
    if min(padding) < 0:
        return None
    return {**conv.attrs, "stride": tuple(stride), "padding": tuple(padding)}
