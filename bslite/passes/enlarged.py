"""Convolutions of enlarged images read the small ones, which takes fewer products. So do linear layers.

A filter of 3 x 3 on an image of which each pixel is repeated twice in both directions (nearest upsampling)
takes 4 products in the place of 9. A pointwise convolution (1 x 1) is of the small image, and its result is
enlarged instead, by whatever rule. Of a concatenation of enlarged values and others, the layer becomes a sum
of several.
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from bslite.cache import Derived
from bslite.passes.draft import Draft
from bslite.passes.enlargements import RESIZES, Enlargement, Repeated, Resized
from bslite.passes.families import CONVS
from bslite.spec import Array, ModelSpec, Node

LEAST = 48  # products that each number of the result is to save: it may be written and read once more


class Part(NamedTuple):
    """Channels ``first`` to ``end`` of what a convolution reads: those of ``value``, which enlarges ``small``
    as ``how`` says, if it does.
    """

    first: int
    end: int
    value: str
    small: str = ""
    how: Enlargement | None = None


def fold_enlargements(spec: ModelSpec, derived: Derived | None = None) -> ModelSpec:
    """The model with convolutions of small images in the place of those of enlarged ones."""
    if not any(n.op in RESIZES for n in spec.nodes):
        return spec
    draft = Draft(spec, derived)
    for node in list(draft.nodes.values()):
        read = _read(draft, node) if node.op in (*CONVS, "linear") else ()
        if any(value in draft.nodes and draft.nodes[value].op in RESIZES for value in read):
            _fold(draft, node)
    return draft.spec_now()


def _read(draft: Draft, conv: Node) -> tuple[str, ...]:
    """The values whose channels ``conv`` reads one after the other."""
    whole = draft.alone(conv.inputs[0])
    if whole is None or whole.op != "concat" or conv.attrs.get("groups", 1) > 1:
        return conv.inputs
    axes = (1,) if conv.op in CONVS else (-1, len(draft.shape(whole.name)) - 1)
    return whole.inputs if whole.attrs["axis"] in axes else conv.inputs


def _fold(draft: Draft, conv: Node) -> None:
    """Let ``conv`` read small images, where that is less work."""
    attrs, weight = conv.attrs, draft.param(conv.params["weight"])
    kernel, groups = weight.shape[2:], attrs.get("groups", 1)
    beyond = any(p >= k for p, k in zip(attrs.get("padding", ()), (*kernel, *kernel), strict=True))
    apart = any(n > 1 for key in ("stride", "dilation") for n in attrs.get(key, ()))
    if beyond or apart or draft.dtypes[conv.name] != "float32":
        return
    axis = 1 if conv.op in CONVS else len(draft.shape(conv.name)) - 1
    parts = list(_parts(draft, conv, axis, math.prod(kernel) == 1))
    terms: dict[Enlargement | None, list[Part]] = {None: []}
    for part in parts:
        channels = sum(p.end - p.first for p in parts if p.how == part.how) // groups
        saved = part.how.saved(kernel) * channels if part.how else 0
        terms.setdefault(part.how if saved >= LEAST else None, []).append(part)
    if terms.keys() == {None}:
        return
    before: list[Node] = []
    sums: list[Node] = []
    for how, members in terms.items():
        if not members:
            continue
        name = f"{conv.name}/{len(sums)}"
        sources = tuple(p.small if how else p.value for p in members)
        if len(sources) > 1:
            before.append(Node(f"{name}/concat", "concat", sources, {}, {"axis": axis}))
            sources = (before[-1].name,)
        ranges = tuple((p.first, p.end) for p in members)
        make = partial(_weight, weight, ranges if groups == 1 else (), how, groups)
        params = {"weight": f"{name}/weight"}
        made = draft.derive(params["weight"], ("enlarged", ranges, how, groups), [weight], make)
        if not np.isfinite(made).all():
            return
        if "bias" in conv.params and not sums:
            params["bias"] = conv.params["bias"]
        *first, last = _layers(Node(name, conv.op, sources, params, attrs), kernel, how)
        before += first
        sums.append(last)
    total = sums[0]
    for i, term in enumerate(sums[1:]):
        before += [total, term]
        total = Node(f"{conv.name}/sum{i}", "add", (total.name, term.name))
    draft.put(Node(conv.name, total.op, total.inputs, total.params, total.attrs), *before)


def _parts(draft: Draft, conv: Node, axis: int, points: bool) -> Iterator[Part]:
    """What ``conv`` reads, in order. ``axis``: that of channels. ``points``: it reads each pixel alone."""
    first = 0
    for value in _read(draft, conv):
        end, node = first + draft.shape(value)[axis], draft.nodes.get(value)
        if node is None or node.op not in RESIZES:
            yield Part(first, end, value)
        else:
            how = Resized.by(draft, node, axis) if points else Repeated.by(draft, node)
            yield Part(first, end, value, node.inputs[0], how)
        first = end


def _layers(conv: Node, kernel: Sequence[int], how: Enlargement | None) -> list[Node]:
    return [conv] if how is None else how.layers(conv, kernel)


def _weight(weight: Array, ranges: Sequence[tuple[int, int]], how: Enlargement | None, groups: int) -> Array:
    """The weights of the channels ``ranges``, of all if there are none, as the layer that reads these takes
    them.
    """
    if ranges:
        weight = np.concatenate([weight[:, first:end] for first, end in ranges], 1)
    return np.ascontiguousarray(weight if how is None else how.weight(weight, groups))
