"""Rule: what depends on no input, or is the same for every image of a batch, is computed ahead of time.

A constant that is repeated for each image (positions, the queries of a decoder) often goes through layers
before it meets the images. Their result is a constant, too, which is repeated in the place of the first.
Layers that read constants alone (tables of positions) make a constant.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from bslite.errors import BsliteError
from bslite.ops import Kind, Shape, infer
from bslite.passes.draft import Draft
from bslite.reference import call
from bslite.spec import Array, Node

#: Floating-point operations that the reference may carry out ahead: of products, which take a tenth of a
#: second in float64, and of ops that it takes in loops.
MOST_FLOPS, MOST_IN_LOOPS = 10**10, 10**7
#: Elements that may be made: so many, or so many times those of the largest constant that they are made of.
SMALL, GROWTH = 2**16, 2
#: Elements that may be moved ahead: a view of them costs nothing, and may be of somebody else's memory.
MOVED = 2**20


def computed_ahead(draft: Draft, node: Node) -> bool:
    """A node that reads constants alone, some of which may be repeated for each image."""
    dtype = draft.dtypes[node.name]
    if node.op in ("constant", "repeat_batch") or not node.inputs or dtype not in ("float32", "bool"):
        return False
    keys: list[str] = []
    repeats: list[Node] = []
    for name in node.inputs:
        made = draft.nodes.get(name)
        if made is not None and made.op == "repeat_batch":
            repeats.append(made)
            made = draft.nodes.get(made.inputs[0])
        if made is None or made.op != "constant":
            return False
        keys.append(made.params["value"])
    if not (_image_by_image(draft, node) if repeats else node.name not in draft.outputs):
        return False
    keys += node.params.values()
    whole = draft.shape(node.name)
    shape = (1, *whole[1:]) if repeats else whole
    known = [draft.param(key) for key in keys[: len(node.inputs)]]
    params = {role: draft.param(key) for role, key in node.params.items()}
    what, leaves = _description(draft, node, keys)
    if not _makes(node, known, params, shape) or not _small(draft, node, known, params, shape, leaves):
        return False
    # What moves numbers is exact in any precision; what is a view then stays one.
    moved = node.declaration.kind is Kind.MOVEMENT and not _computes(node, known, shape)
    try:
        value = call(node.op, known, params, node.attrs, np.float32 if moved else np.float64)
    except BsliteError:  # an index beyond its axis, say: it is reported where the model runs
        return False
    with np.errstate(over="ignore"):  # infinite, as it would be there
        value = value.astype(dtype, copy=False)
    key = f"{node.name}/ahead"
    draft.hold(key, what, leaves, value)
    constant = Node(key if repeats else node.name, "constant", params={"value": key})
    if repeats:
        draft.put(Node(node.name, "repeat_batch", (key, repeats[0].inputs[1])), constant)
    else:
        draft.put(constant)
    return True


def _description(draft: Draft, node: Node, keys: Sequence[str]) -> tuple[str, list[Array]]:
    """What the node makes of the parameters ``keys``, in terms of the model's own, and these."""
    return described([node.op, sorted(node.attrs.items()), tuple(node.params), len(node.inputs)], draft, keys)


def described(said: object, draft: Draft, keys: Iterable[str]) -> tuple[str, list[Array]]:
    """A digest of what is ``said`` of the parameters ``keys``, in terms of the model's own, and these."""
    leaves: list[Array] = []
    parts = []
    for key in keys:
        what, sources = draft.held(key) or ("", [draft.param(key)])
        parts.append((what, [_place(leaves, source) for source in sources]))
    return hashlib.sha256(repr((said, parts)).encode()).hexdigest(), leaves


def _place(leaves: list[Array], source: Array) -> int:
    """The place of an array in the list, which it joins if it is not there."""
    found = next((i for i, leaf in enumerate(leaves) if leaf is source), len(leaves))
    if found == len(leaves):
        leaves.append(source)
    return found


def _image_by_image(draft: Draft, node: Node) -> bool:
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


def _makes(node: Node, known: Sequence[Array], params: Mapping[str, Array], shape: Shape) -> bool:
    """Whether the node makes a value of this shape of the constants: an attribute may name the batch."""
    sizes = {role: array.shape for role, array in params.items()}
    try:
        return infer(node.declaration, [x.shape for x in known], sizes, node.attrs) == shape
    except BsliteError:
        return False


def _small(
    draft: Draft,
    node: Node,
    known: Sequence[Array],
    params: Mapping[str, Array],
    shape: Shape,
    leaves: Sequence[Array],
) -> bool:
    """Whether the value takes no long time to compute, nor much memory to keep."""
    op, elements = node.declaration, math.prod(shape)
    if elements > max(SMALL, GROWTH * max(x.size for x in leaves)):
        return False
    if op.kind is Kind.MOVEMENT and elements > SMALL:
        readers = [len(draft.reading[name]) for name in node.inputs]
        return (elements <= MOVED and max(readers) == 1) or _goes_on(draft, node)
    sizes = {role: array.shape for role, array in params.items()}
    flops = op.flops([x.shape for x in known], shape, sizes, node.attrs)
    loops = op.kind in (Kind.CONTRACTION, Kind.WINDOW) and node.op not in ("linear", "matmul")
    return flops <= (MOST_IN_LOOPS if loops else MOST_FLOPS)


def _computes(node: Node, known: Sequence[Array], shape: Shape) -> bool:
    """Whether an op that moves numbers computes some, or the places where they are."""
    flops = node.declaration.flops([x.shape for x in known], shape, {}, node.attrs)
    return flops > 0 or node.op == "grid_sample"


def _goes_on(draft: Draft, node: Node) -> bool:
    """Whether all that read the value read constants besides, if anything, so that it may not stay."""
    readers = [draft.nodes[name] for name in draft.reading.get(node.name, ())]
    beside = {name for reader in readers for name in reader.inputs if name != node.name}
    known = all(name in draft.nodes and draft.nodes[name].op == "constant" for name in beside)
    return bool(readers) and known and node.name not in draft.outputs
