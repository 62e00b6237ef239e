"""Rules: values whose first two axes were made one, as ``torch.bmm`` takes them, keep them apart.

A merge, the reshape ``[N, H, L, M]`` to ``[N * H, L, M]``, goes behind what does not mind it, until it meets
the reshape that undoes it. Products of batches and heads are then seen as an attention, and a matrix that
is the same for all images as the constant that it is.
"""

from bslite.passes.draft import Draft
from bslite.passes.fuse import BINARY
from bslite.spec import Node


def _apart(draft: Draft, name: str) -> str | None:
    """The value that a merge of its first two axes made ``name`` of."""
    node = draft.nodes.get(name)
    if node is None or node.op not in ("reshape", "flatten"):
        return None
    source = node.inputs[0]
    for shapes in draft.shapes:
        if len(shapes[source]) != 4 or shapes[source][2:] != shapes[name][1:]:
            return None
    return source


def _together(draft: Draft, node: Node, made: Node) -> bool:
    """Let the value of ``node`` be a merge of what ``made`` makes."""
    sizes = [(axis, draft.fixed(node.name, [axis])) for axis in range(1, len(draft.shape(node.name)))]
    rest = [-3 - axis if size is None else size[0] for axis, size in sizes]  # -2 - i: as axis i of `made`
    draft.put(Node(node.name, "reshape", (made.name,), attrs={"shape": (-1, *rest)}), made)
    return True


def permuted_apart(draft: Draft, node: Node) -> bool:
    """A permutation behind a merge, which leaves the first axis where it is, goes before it."""
    source, order = _apart(draft, node.inputs[0]), node.attrs["order"]
    if source is None or order[0] != 0:
        return False
    wider = [0, 1, *(axis + 1 for axis in order[1:])]
    return _together(draft, node, Node(f"{node.name}/apart", "permute", (source,), attrs={"order": wider}))


def scaled_apart(draft: Draft, node: Node) -> bool:
    """Arithmetic on a merge and a number goes before the merge."""
    sources = [_apart(draft, name) or name for name in node.inputs]
    numbers = [draft.number(name) is not None for name in node.inputs]
    merged = [source != name for source, name in zip(sources, node.inputs, strict=True)]
    if merged not in ([True, False], [False, True]) or numbers != [not one for one in merged]:
        return False
    if len(draft.shape(node.name)) != len(draft.shape(node.inputs[merged.index(True)])):
        return False
    made = Node(f"{node.name}/apart", node.op, tuple(sources), node.params, node.attrs)
    return _together(draft, node, made)


def multiplied_apart(draft: Draft, node: Node) -> bool:
    """The product of two merges of the same axes is a merge of a product."""
    a, b = (_apart(draft, name) for name in node.inputs)
    if a is None or b is None or any(shapes[a][:2] != shapes[b][:2] for shapes in draft.shapes):
        return False
    return _together(draft, node, Node(f"{node.name}/apart", "matmul", (a, b)))


def softmax_apart(draft: Draft, node: Node) -> bool:
    """A softmax of a merge, along another axis than that, goes before it."""
    source, rank = _apart(draft, node.inputs[0]), len(draft.shape(node.name))
    axis = node.attrs["axis"] % rank
    if source is None or axis == 0:
        return False
    return _together(draft, node, Node(f"{node.name}/apart", "softmax", (source,), attrs={"axis": axis + 1}))


def split_before(draft: Draft, node: Node) -> bool:
    """The sum of a merge and another value, split as the merge's own source: the other one is split."""
    before, shape = draft.alone(node.inputs[0]), node.attrs.get("shape", ())
    if before is None or before.op not in BINARY or len(shape) < 3 or min(shape[:2]) < -1 or 0 in shape[:2]:
        return False
    sources = [_apart(draft, name) for name in before.inputs]
    kept = [source is not None and draft.alike(source, node.name) for source in sources]
    rank = len(draft.shape(before.name))
    split, inputs = list[Node](), list[str]()
    for name, source, as_node in zip(before.inputs, sources, kept, strict=True):
        if as_node and source is not None:
            inputs.append(source)
            continue
        whole = all(shapes[name][:1] == shapes[before.name][:1] for shapes in draft.shapes)
        if not any(kept) or not whole or len(draft.shape(name)) != rank:
            return False
        rest = [-2 - axis for axis in range(1, rank)]
        split.append(Node(f"{name}/apart", "reshape", (name,), attrs={"shape": (*shape[:2], *rest)}))
        inputs.append(split[-1].name)
    draft.put(Node(node.name, before.op, tuple(inputs), before.params, before.attrs), *split)
    return True


def permuted_once(draft: Draft, node: Node) -> bool:
    """A value that is repeated for each image is permuted before that."""
    repeated, order = draft.nodes.get(node.inputs[0]), node.attrs["order"]
    if repeated is None or repeated.op != "repeat_batch" or order[0] != 0:
        return False
    one = Node(f"{node.name}/once", "permute", repeated.inputs[:1], attrs=node.attrs)
    draft.put(Node(node.name, "repeat_batch", (one.name, repeated.inputs[1])), one)
    return True


def matrix_of_all(draft: Draft, node: Node) -> bool:
    """A product with a matrix that is repeated for each image: with the matrix itself, which is broadcast."""
    x, w = node.inputs
    repeated, ranks = draft.nodes.get(w), {len(draft.shape(name)) for name in node.inputs}
    if repeated is None or repeated.op != "repeat_batch" or ranks - {3, 4} or len(ranks) != 1:
        return False
    if any(shapes[x][0] != shapes[node.name][0] for shapes in draft.shapes):
        return False
    draft.put(Node(node.name, "matmul", (x, repeated.inputs[0])))
    return True
