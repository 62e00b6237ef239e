"""Rule: what depends on no input, or is the same for every image of a batch, is computed ahead of time.

A constant that is repeated for each image (positions, the queries of a decoder) often goes through layers
before it meets the images. Their result is a constant, too, which is repeated in the place of the first.
Layers that read constants alone (tables of positions) make a constant.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from bslite.errors import InputError
from bslite.ops import Shape
from bslite.passes.draft import Draft
from bslite.reference import call
from bslite.spec import Array, Node

#: Floating-point operations that may be carried out ahead, by the reference.
MOST_FLOPS = 10**9
#: A result may be as many times as large as what it is made of, or as small as that many elements.
GROWTH, SMALL = 2, 2**16


def computed_ahead(draft: Draft, node: Node) -> bool:
    """A node that reads constants alone, some of which may be repeated for each image."""
    if node.op in ("constant", "repeat_batch") or not node.inputs:
        return False
    known: list[Array] = []
    repeats: list[Node] = []
    for name in node.inputs:
        made = draft.nodes.get(name)
        if made is not None and made.op == "repeat_batch":
            repeats.append(made)
            made = draft.nodes.get(made.inputs[0])
        if made is None or made.op != "constant":
            return False
        known.append(draft.param(made.params["value"]))
    if not (_image_by_image(draft, node, len(repeats)) if repeats else node.name not in draft.outputs):
        return False
    params = {role: draft.param(key) for role, key in node.params.items()}
    shape = draft.shape(node.name)
    made_shape = (1, *shape[1:]) if repeats else shape
    if not _small(node, made_shape, known, params):
        return False
    key = f"{node.name}/ahead"
    about = (node.op, repr(dict(node.attrs)), tuple(x.shape for x in known), tuple(params))
    make = partial(_value, node, known, params, draft.dtypes[node.name])
    try:
        value = draft.derive(key, ("ahead", about), [*known, *params.values()], make)
    except InputError:  # an index beyond its axis, say: it is reported where the model runs
        return False
    assert value.shape == made_shape, node.name
    constant = Node(key if repeats else node.name, "constant", params={"value": key})
    if repeats:
        draft.put(Node(node.name, "repeat_batch", (key, repeats[0].inputs[1])), constant)
    else:
        draft.put(constant)
    return True


def _image_by_image(draft: Draft, node: Node, repeats: int) -> bool:
    """Whether the value of a batch is that of one image, repeated, at any size."""
    op, rank = node.declaration, len(draft.shape(node.name))
    fixed = rank > 0 and draft.fixed(node.name, range(1, rank)) is not None
    if not fixed or op.sums_images or op.share(len(node.inputs)):
        return False
    whole = [name for name in node.inputs if draft.nodes[name].op == "repeat_batch"]
    ranks = [len(draft.shape(name)) for name in whole]
    for shapes in draft.shapes:
        if len({shapes[name][0] for name in (*whole, node.name)}) > 1:
            return False
        if len(whole) < len(node.inputs) and any(len(shapes[name]) > ranks[0] for name in node.inputs):
            return False
        beside = [shapes[name] for name in node.inputs if name not in whole]
        if any(len(shape) == ranks[0] and shape[0] != 1 for shape in beside):
            return False
    return op.keeps_images_apart(ranks, node.attrs)


def _small(node: Node, shape: Shape, known: Sequence[Array], params: Mapping[str, Array]) -> bool:
    """Whether the value takes no long time to compute, nor much memory to keep."""
    sizes = {role: array.shape for role, array in params.items()}
    flops = node.declaration.flops([x.shape for x in known], shape, sizes, node.attrs)
    return flops <= MOST_FLOPS and math.prod(shape) <= max(SMALL, GROWTH * max(x.size for x in known))


def _value(node: Node, known: Sequence[Array], params: Mapping[str, Array], dtype: str) -> Array:
    return np.asarray(call(node.op, known, params, node.attrs, np.float64), dtype)
