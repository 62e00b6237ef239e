"""Rules: what does nothing goes; permutations and reshapes one after the other become one, or none; what a
layer's store can apply goes before them, and so does arithmetic on values whose axes are permuted alike.
"""

import math
from collections.abc import Callable, Sequence

from bslite.ops.reduce import Reduction
from bslite.passes.draft import Draft
from bslite.passes.families import MOVES
from bslite.passes.fuse import WITH_ACTIVATION
from bslite.spec import Node


def number_is(index: int, value: float) -> Callable[[Draft, Node], str | None]:
    """Of a binary node: its other input, if the one at ``index`` is the constant ``value``."""

    def other(draft: Draft, node: Node) -> str | None:
        return node.inputs[1 - index] if draft.number(node.inputs[index]) == value else None

    return other


def _first(draft: Draft, node: Node) -> str | None:
    return node.inputs[0]


def _chosen(draft: Draft, node: Node) -> str | None:
    """Of a ``where``: the input that a known condition chooses everywhere."""
    condition = draft.nodes.get(node.inputs[0])
    if condition is not None and condition.op == "repeat_batch":
        condition = draft.nodes.get(condition.inputs[0])
    if condition is None or condition.op != "constant":
        return None
    known = draft.param(condition.params["value"])
    return node.inputs[1] if known.all() else None if known.any() else node.inputs[2]


#: Of the ops that may do nothing: the input whose value theirs would be; shapes have to be alike.
SAME: dict[str, tuple[Callable[[Draft, Node], str | None], ...]] = {
    "add": (number_is(0, 0.0), number_is(1, 0.0)),
    "sub": (number_is(1, 0.0),),
    "mul": (number_is(0, 1.0), number_is(1, 1.0)),
    "div": (number_is(1, 1.0),),
    "maximum": (number_is(0, -math.inf), number_is(1, -math.inf)),
    "minimum": (number_is(0, math.inf), number_is(1, math.inf)),
    "pow": (number_is(1, 1.0),),
    "reshape": (_first,),
    "flatten": (_first,),
    "expand": (_first,),
    "cast": (lambda d, n: n.inputs[0] if d.dtypes[n.inputs[0]] == n.attrs["to"] else None,),
    "permute": (lambda d, n: n.inputs[0] if list(n.attrs["order"]) == sorted(n.attrs["order"]) else None,),
    "slice": (lambda d, n: n.inputs[0] if n.attrs["step"] == 1 and d.left_out(n) == (0, 0) else None,),
    "concat": (lambda d, n: n.inputs[0] if len(n.inputs) == 1 else None,),
    "where": (_chosen,),
}


def does_nothing(draft: Draft, node: Node) -> bool:
    """A node whose value is that of an input: its readers read that. An output of the model stays."""
    if node.name in draft.outputs:
        return False
    for same in SAME[node.op]:
        source = same(draft, node)
        if source is not None and draft.alike(source, node.name):
            draft.bypass(node, source)
            return True
    return False


def two_permutations(draft: Draft, node: Node) -> bool:
    """A permutation of a permutation is one; the first goes if nothing else reads it."""
    before = draft.nodes.get(node.inputs[0])
    if before is None or before.op != "permute":
        return False
    order = [before.attrs["order"][axis] for axis in node.attrs["order"]]
    if draft.alone(before.name) is None and (order != sorted(order) or node.name in draft.outputs):
        return False
    draft.put(Node(node.name, "permute", before.inputs, attrs={"order": order}))
    return True


def permutation_undone(draft: Draft, node: Node) -> bool:
    """A permutation that undoes one before it; reshapes in between add or drop axes of size 1."""
    kept = wide_axes(draft, node.name)
    current: Node | None = node
    while current is not None and current.op in ("permute", "reshape", "flatten"):
        source = current.inputs[0]
        below = wide_axes(draft, source)
        if current.op == "permute":
            kept = [current.attrs["order"][axis] for axis in kept]
        else:
            above = wide_axes(draft, current.name)
            sizes = [
                ([shapes[source][i] for i in below], [shapes[current.name][i] for i in above])
                for shapes in draft.shapes
            ]
            if any(a != b for a, b in sizes):
                return False
            kept = [below[above.index(axis)] for axis in kept]
        if current is not node and current.op == "permute" and kept == below:
            target = reshape_target(draft, source, node.name)
            if target is None:
                return False
            draft.put(Node(node.name, "reshape", (source,), attrs={"shape": target}))
            return True
        current = draft.alone(source)
    return False


def activation_before_moves(draft: Draft, node: Node) -> bool:
    """An activation of what a layer makes, behind moves: it goes before them, into the layer's store."""
    moves: list[Node] = []
    before = draft.alone(node.inputs[0])
    while before is not None and before.op in MOVES:
        moves.append(before)
        before = draft.alone(before.inputs[0])
    if before is None or not moves or before.op not in WITH_ACTIVATION:
        return False
    made = [Node(f"{node.name}/applied", node.op, (before.name,), node.params, node.attrs)]
    for move in reversed(moves[1:]):  # under other names: what they make is another value now
        made.append(Node(f"{move.name}/applied", move.op, (made[-1].name,), attrs=move.attrs))
    draft.put(Node(node.name, moves[0].op, (made[-1].name,), attrs=moves[0].attrs), *made)
    return True


def arithmetic_before_permutations(draft: Draft, node: Node) -> bool:
    """Arithmetic on two values permuted alike, or on one and a number: the result is permuted instead.

    Networks written for images with channels last come as convolutions between permutations; this lets those
    around the sum of a residual block meet and cancel. No rule adds permutations: one goes that only ``node``
    reads.
    """
    sources: list[str] = []
    order: Sequence[int] | None = None
    goes = False
    for name in node.inputs:
        before = draft.nodes.get(name)
        if before is not None and before.op == "permute" and order in (None, before.attrs["order"]):
            order = before.attrs["order"]
            goes |= set(draft.reading[name]) == {node.name} and name not in draft.outputs
            sources.append(before.inputs[0])
        elif draft.number(name) is not None:
            sources.append(name)
        else:
            return False
    if order is None or not goes or len(draft.shape(node.name)) != len(order):
        return False
    made = Node(f"{node.name}/unmoved", node.op, tuple(sources), node.params, node.attrs)
    draft.put(Node(node.name, "permute", (made.name,), attrs={"order": order}), made)
    return True


def wide_axes(draft: Draft, name: str) -> list[int]:
    """The axes of the value whose size is not always 1."""
    return [i for i in range(len(draft.shape(name))) if draft.fixed(name, [i]) != (1,)]


def two_reshapes(draft: Draft, node: Node) -> bool:
    """A reshape of a reshape that nothing else reads is one, where its shape can be said of the source."""
    before = draft.alone(node.inputs[0])
    if before is None or before.op not in ("reshape", "flatten"):
        return False
    target = reshape_target(draft, before.inputs[0], node.name)
    if target is None:
        return False
    draft.put(Node(node.name, "reshape", before.inputs, attrs={"shape": target}))
    return True


def axes_kept(draft: Draft, node: Node) -> bool:
    """A reshape that gives a reduction its axes back, with one element each: the reduction keeps them."""
    before = draft.alone(node.inputs[0])
    if before is None or not isinstance(before.declaration, Reduction) or before.attrs["keepdim"]:
        return False
    x = before.inputs[0]
    axes = before.declaration.axes(before.attrs, len(draft.shape(x)))
    for shapes in draft.shapes:
        if shapes[node.name] != tuple(1 if i in axes else n for i, n in enumerate(shapes[x])):
            return False
    attrs = {**before.attrs, "keepdim": True}
    draft.put(Node(node.name, before.op, before.inputs, before.params, attrs))
    return True


def reshape_target(draft: Draft, source: str, name: str) -> tuple[int, ...] | None:
    """The shape of the value ``name`` as a reshape of ``source`` says it at any size; None if it cannot."""
    target = []
    for axis in range(len(draft.shape(name))):
        sizes = draft.fixed(name, [axis])
        kept = axis < len(draft.shape(source)) and all(
            shapes[source][axis] == shapes[name][axis] for shapes in draft.shapes
        )
        target.append(sizes[0] if sizes is not None else 0 if kept else -1)
    return tuple(target) if target.count(-1) <= 1 else None
