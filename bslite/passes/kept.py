"""Rows that a slice keeps are computed, others are not: the slice goes before what makes them.

A classifier reads one token of its last layer (BERT, arXiv 1810.04805; ViT, arXiv 2010.11929), a language
model the last one. Relative positions pick few of the columns of a product with all positions (DeBERTa, arXiv
2006.03654).
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from bslite.ops import Kind, Shape
from bslite.passes.draft import Draft
from bslite.passes.moves import reshape_target
from bslite.spec import Node

PART = 2  # a slice keeps one in so many at most, or it stays: strides have a price, too


class Source(NamedTuple):
    """Where what a node makes along an axis comes from: the axis of each input, None of one that is read
    whole; the op and the attributes of a node that makes less.
    """

    axes: list[int | None]
    op: str
    attrs: Mapping[str, Any]


class Cut(NamedTuple):
    """What a slice keeps of the elements along an axis, which is not negative."""

    axis: int
    start: int
    stop: int | None
    step: int


Rule = Callable[[Draft, Node, Cut], Source | None]


def slices_first(draft: Draft) -> None:
    """Move the slices of a model before what makes them, as far up as they keep little of it."""
    for name in [n.name for n in draft.nodes.values() if n.op == "gather_elements"]:
        _columns_picked(draft, draft.nodes[name])
    moved = True
    while moved:
        moved = False
        for name in [n.name for n in draft.nodes.values() if n.op == "slice"]:
            if name in draft.nodes:  # which one like it may have replaced
                moved |= _moved(draft, draft.nodes[name])


def _moved(draft: Draft, node: Node) -> bool:
    """Let what makes the source of a slice, and is read by nothing else, make the sliced value."""
    made_by = draft.alone(node.inputs[0])
    cut = _cut(draft, node)
    if made_by is None or not all(_few(s, node, cut.axis) for s in draft.shapes):
        return False
    if not _saves(draft, made_by, cut):
        return False
    source = _source(draft, made_by, cut)
    if source is None:
        return _rows_apart(draft, made_by)
    new: dict[Any, Node] = {}
    inputs: list[str] = []
    for name, place in zip(made_by.inputs, source.axes, strict=True):
        if place is not None:
            there = cut._replace(axis=place)
            label = draft.unused(f"{name}/kept", [n.name for n in new.values()])
            taken = Node(label, "slice", (name,), attrs=there._asdict())
            name = _like(draft, name, there) or new.setdefault((name, place), taken).name
        inputs.append(name)
    draft.put(Node(node.name, source.op, tuple(inputs), made_by.params, source.attrs), *new.values())
    return True


def _cut(draft: Draft, node: Node) -> Cut:
    """What a slice keeps."""
    axis = node.attrs["axis"] % len(draft.shape(node.name))
    return Cut(axis, node.attrs["start"], node.attrs["stop"], node.attrs["step"])


def _few(shapes: Mapping[str, Shape], node: Node, axis: int) -> bool:
    """Whether a slice keeps few elements along its axis, in these shapes."""
    return PART * shapes[node.name][axis] <= shapes[node.inputs[0]][axis]


def _like(draft: Draft, name: str, cut: Cut) -> str | None:
    """The value that such a slice of ``name`` is already; it then stands right behind ``name``."""
    for reader in draft.reading.get(name, {}):
        node = draft.nodes[reader]
        if node.op == "slice" and _cut(draft, node) == cut:
            start = draft.place.get(name, -1.0)  # an input stands before all nodes
            draft.place[reader] = (start + min(draft.place[r] for r in draft.reading[name])) / 2
            return reader
    return None


def _splits_rows(draft: Draft, node: Node) -> tuple[Node, Node] | None:
    """A linear layer whose rows were made one axis for it, and are split again by the reshape ``node``; with
    a reshape for the ``node``'s rows of what was made one axis.
    """
    linear = draft.alone(node.inputs[0])
    if linear is None or linear.op != "linear" or not draft.shape(node.name)[1:]:
        return None
    flat, width = draft.alone(linear.inputs[0]), draft.fixed(linear.inputs[0], [-1])
    if flat is None or flat.op not in RESHAPES or width is None:
        return None
    target = reshape_target(draft, flat.inputs[0], node.name)
    if target is None or any(s[node.name][-1] != s[linear.name][-1] for s in draft.shapes):
        return None
    return linear, Node(f"{flat.name}/apart", "reshape", flat.inputs, attrs={"shape": (*target[:-1], *width)})


def _rows_apart(draft: Draft, node: Node) -> bool:
    """Rows of a linear layer are split before it, not behind it."""
    found = _splits_rows(draft, node)
    assert found is not None  # what `_saves` has found
    linear, split = found
    draft.put(Node(node.name, "linear", (split.name,), linear.params, linear.attrs), split)
    return True


def _columns_picked(draft: Draft, node: Node) -> None:
    """A `gather_elements` by known indices from columns of a product: from those between the first and the
    last one that they pick.
    """
    x, indices = node.inputs
    axis, repeat = node.attrs["axis"] % max(1, len(draft.shape(x))), draft.nodes.get(indices)
    known = repeat
    if repeat is not None and repeat.op == "repeat_batch" and repeat.inputs[1] == x and axis:
        known = draft.nodes.get(repeat.inputs[0])
    size, product = draft.fixed(x, [axis]), draft.nodes.get(x)
    while product is not None and product.op in RESHAPES:
        product = draft.alone(product.inputs[0])
    if known is None or known.op != "constant" or size is None or product is None or product.op != "matmul":
        return
    if x in draft.outputs or set(draft.reading[x]) - {node.name, indices}:
        return
    key = known.params["value"]
    found = draft.param(key)
    places = np.where(found < 0, found + size[0], found)
    first, last = (int(places.min()), int(places.max())) if places.size else (0, size[0])
    if first < 0 or last >= size[0] or PART * (last + 1 - first) > size[0]:
        return
    fewer = f"{node.name}/places"
    draft.derive(fewer, ("places from", first, size[0]), [found], lambda: places - first)
    attrs = {"axis": axis, "start": first, "stop": last + 1, "step": 1}
    new = [Node(f"{x}/kept", "slice", (x,), attrs=attrs), Node(fewer, "constant", params={"value": fewer})]
    if known is not repeat:
        new.append(Node(f"{indices}/places", "repeat_batch", (fewer, new[0].name)))
    draft.put(Node(node.name, node.op, (new[0].name, new[-1].name), attrs=node.attrs), *new)


def _elementwise(draft: Draft, node: Node, cut: Cut) -> Source | None:
    rank, axes = len(draft.shape(node.name)), list[int | None]()
    for name in node.inputs:
        place = cut.axis - rank + len(draft.shape(name))
        wide = place >= 0 and any(shapes[name][place] != 1 for shapes in draft.shapes)
        if wide and any(shapes[name][place] != shapes[node.name][cut.axis] for shapes in draft.shapes):
            return None
        axes.append(place if wide else None)
    several = sum(place is not None for place in axes) > 1
    return None if several and not _of_one_too(draft, cut) else Source(axes, node.op, node.attrs)


def _of_one_too(draft: Draft, cut: Cut) -> bool:
    """Whether what meets others along the cut's axis may be cut: if a free size of it is one in some call, it
    is broadcast, and what a cut of one element at an end keeps of it is all.
    """
    ends = (0, 1, 1), (-1, None, 1)
    return cut[1:] in ends or draft.varied


def _norm(draft: Draft, node: Node, cut: Cut) -> Source | None:
    rows = len(draft.shape(node.name)) - len(node.attrs["normalized_shape"])
    return Source([cut.axis], node.op, node.attrs) if cut.axis < rows else None


def _along_another(draft: Draft, node: Node, cut: Cut) -> Source | None:
    same = node.attrs["axis"] % len(draft.shape(node.name)) == cut.axis
    return None if same else Source([cut.axis] * len(node.inputs), node.op, node.attrs)


def _linear(draft: Draft, node: Node, cut: Cut) -> Source | None:
    return Source([cut.axis], node.op, node.attrs) if cut.axis < len(draft.shape(node.name)) - 1 else None


def _product(draft: Draft, node: Node, cut: Cut) -> Source | None:
    rank, ranks = len(draft.shape(node.name)), [len(draft.shape(name)) for name in node.inputs]
    if min(ranks) < 2 or cut.axis < rank - 2:
        return None
    rows = cut.axis == rank - 2
    return Source([ranks[0] - 2, None] if rows else [None, ranks[1] - 1], node.op, node.attrs)


def _attention(draft: Draft, node: Node, cut: Cut) -> Source | None:
    q, k, *others = node.inputs
    if cut.axis != len(draft.shape(node.name)) - 2 or node.attrs["dropped"]:
        return None
    if node.attrs["is_causal"] and not _sees_all(draft, q, k, cut):
        return None
    axes: list[int | None] = [len(draft.shape(q)) - 2, None, None]
    for mask in others[1:]:
        place = len(draft.shape(mask)) - 2
        wide = place >= 0 and any(shapes[mask][place] != 1 for shapes in draft.shapes)
        if wide and not _of_one_too(draft, cut):
            return None
        axes.append(place if wide else None)
    return Source(axes, node.op, {**node.attrs, "is_causal": False})


def _sees_all(draft: Draft, q: str, k: str, cut: Cut) -> bool:
    """Whether all rows of q that are kept see all keys of a causal attention, as the last of as many does."""
    if not draft.varied:
        return False
    if cut[1:] == (-1, None, 1) and all(shapes[q][-2] == shapes[k][-2] for shapes in draft.shapes):
        return True
    rows, keys = draft.fixed(q, [-2]), draft.fixed(k, [-2])
    if rows is None or keys is None:
        return False
    return min(range(*rows)[cut.start : cut.stop : cut.step]) >= keys[0] - 1


def _permuted(draft: Draft, node: Node, cut: Cut) -> Source | None:
    return Source([node.attrs["order"][cut.axis]], node.op, node.attrs)


def _repeated(draft: Draft, node: Node, cut: Cut) -> Source | None:
    return Source([cut.axis, None], node.op, node.attrs) if cut.axis else None


def _reshaped(draft: Draft, node: Node, cut: Cut) -> Source | None:
    """An axis that the reshape leaves as it is."""
    target = list[int]()
    places = [_kept_axis(draft, node, d) for d in range(len(draft.shape(node.name)))]
    for d, place in enumerate(places):
        size = draft.fixed(node.name, [d])
        if place is not None and (d == cut.axis or size is None):
            target.append(-2 - place)  # as that axis of the source
        else:
            target.append(-1 if size is None else size[0])
    if places[cut.axis] is None or target.count(-1) > 1:
        return None
    return Source([places[cut.axis]], "reshape", {"shape": tuple(target)})


def _kept_axis(draft: Draft, node: Node, axis: int) -> int | None:
    """The axis of a reshape's source that is its ``axis``, at any size."""
    found = {_same(shapes[node.inputs[0]], shapes[node.name], axis) for shapes in draft.shapes}
    return found.pop() if len(found) == 1 else None


def _same(source: Shape, target: Shape, axis: int) -> int | None:
    """The axis of ``source`` with as many elements, and as many before it, as ``axis`` of ``target``."""
    before = math.prod(target[:axis])
    same = (i for i, n in enumerate(source) if n == target[axis] and math.prod(source[:i]) == before)
    return next(same, None)


RESHAPES = ("reshape", "flatten")
RULES: dict[str, Rule] = {
    **dict.fromkeys(("layer_norm", "rms_norm"), _norm),
    **dict.fromkeys(("softmax", "log_softmax", "normalize", "concat"), _along_another),
    **dict.fromkeys(RESHAPES, _reshaped),
    "linear": _linear,
    "matmul": _product,
    "attention": _attention,
    "permute": _permuted,
    "repeat_batch": _repeated,
}  # fmt: skip


def _source(draft: Draft, node: Node, cut: Cut) -> Source | None:
    """Where what the node makes along the axis of ``cut`` comes from; None if the cut cannot go before it."""
    pointwise = node.declaration.kind is Kind.POINTWISE and not node.params
    rule = _elementwise if pointwise else RULES.get(node.op)
    return None if rule is None else rule(draft, node, cut)


def _saves(draft: Draft, node: Node, cut: Cut) -> bool:
    """Whether a slice that goes before the node reaches products, or sums, that it makes fewer. Elementwise
    ops and moves before it have their place in the store of what makes their source.
    """
    source = _source(draft, node, cut)
    if source is None:
        return node.op == "reshape" and _splits_rows(draft, node) is not None
    if node.declaration.kind in (Kind.CONTRACTION, Kind.REDUCTION):
        return True
    for name, place in zip(node.inputs, source.axes, strict=True):
        made_by = None if place is None else draft.alone(name)
        if made_by is not None and place is not None and _saves(draft, made_by, cut._replace(axis=place)):
            return True
    return False
