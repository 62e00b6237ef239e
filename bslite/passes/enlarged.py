"""Convolutions of enlarged images: the filter meets each pixel of the small image once.

Where each pixel is repeated ``s`` times along an axis (nearest upsampling), several taps of a filter of ``k``
read copies of one pixel: ``V·x + W·x = (V + W)·x``. What is left are ``k + s - 1`` taps, of which an output
meets every ``s``-th: a transposed convolution of stride ``s`` of the small image. A filter of 3 x 3 on a
doubled image takes 4 products in the place of 9. Of a concatenation of enlarged values and others, the layer
becomes a sum of several. Weights are added in float64 and rounded once.
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from bslite.cache import Derived
from bslite.ops.resized.resampling import places, taps
from bslite.ops.resized.upsample import tables
from bslite.passes.draft import Draft
from bslite.passes.families import CONVS, TRANSPOSED
from bslite.spec import Array, ModelSpec, Node

LEAST = 64  # products that each number of the result is to save: it may be written and read once more

#: How often each pixel is repeated, axis by axis.
Times = tuple[int, ...]


class Part(NamedTuple):
    """Channels ``first`` to ``end`` of what a convolution reads: those of ``value``, which has each pixel of
    ``small`` so many ``times``.
    """

    first: int
    end: int
    value: str
    small: str
    times: Times


def fold_enlargements(spec: ModelSpec, derived: Derived | None = None) -> ModelSpec:
    """The model with convolutions of small images in the place of those of enlarged ones."""
    if not any(n.op in ("upsample", "resize") for n in spec.nodes):
        return spec
    draft = Draft(spec, derived)
    for node in list(draft.nodes.values()):
        if node.op in CONVS:
            _fold(draft, node)
    return draft.spec_now()


def _fold(draft: Draft, conv: Node) -> None:
    """Let ``conv`` read small images, where that is less work."""
    attrs, weight = conv.attrs, draft.param(conv.params["weight"])
    kernel = weight.shape[2:]
    beyond = any(p >= k for p, k in zip(attrs["padding"], (*kernel, *kernel), strict=True))
    if beyond or {*attrs["stride"], *attrs["dilation"]} != {1} or draft.dtypes[conv.name] != "float32":
        return
    once, alike = (1,) * len(kernel), dict[Times, list[Part]]()
    for part in _parts(draft, conv):
        alike.setdefault(part.times, []).append(part)
    terms: dict[Times, list[Part]] = {}
    for part in sorted(part for parts in alike.values() for part in parts):
        channels = sum(p.end - p.first for p in alike[part.times]) // attrs["groups"]
        saves = channels * _saved(kernel, part.times) >= LEAST
        terms.setdefault(part.times if saves else once, []).append(part)
    if terms.keys() == {once}:
        return
    before: list[Node] = []
    sums: list[Node] = []
    for times, parts in terms.items():
        name = f"{conv.name}/{len(sums)}"
        sources = tuple(p.value if times == once else p.small for p in parts)
        if len(sources) > 1:
            before.append(Node(f"{name}/concat", "concat", sources, {}, {"axis": 1}))
            sources = (before[-1].name,)
        channels = tuple((p.first, p.end) for p in parts)
        make = partial(_weight, weight, channels, times, attrs["groups"])
        params = {"weight": f"{name}/weight"}
        made = draft.derive(params["weight"], ("enlarged", channels, times, attrs["groups"]), [weight], make)
        if not np.isfinite(made).all():
            return
        if "bias" in conv.params and not sums:
            params["bias"] = conv.params["bias"]
        sums.append(_layer(conv, name, sources[0], params, kernel, times))
    total = sums[0]
    for i, term in enumerate(sums[1:]):
        before += [total, term]
        total = Node(f"{conv.name}/sum{i}", "add", (total.name, term.name))
    draft.put(Node(conv.name, total.op, total.inputs, total.params, total.attrs), *before)


def _layer(
    conv: Node, name: str, source: str, params: dict[str, str], kernel: Sequence[int], times: Times
) -> Node:
    """A layer that reads some channels of what ``conv`` does."""
    if set(times) == {1}:
        return Node(name, conv.op, (source,), params, conv.attrs)
    pads = zip(conv.attrs["padding"], (*kernel, *kernel), strict=True)
    geometry = {"stride": times, "padding": tuple(k - 1 - p for p, k in pads), "groups": conv.attrs["groups"]}
    return Node(name, TRANSPOSED[CONVS.index(conv.op)], (source,), params, geometry)


def _parts(draft: Draft, conv: Node) -> Iterator[Part]:
    """What ``conv`` reads, in order."""
    names, axes = conv.inputs, len(conv.attrs["stride"])
    whole = draft.alone(names[0])
    if whole is not None and whole.op == "concat" and whole.attrs["axis"] == 1 and conv.attrs["groups"] == 1:
        names = whole.inputs
    first = 0
    for value in names:
        end = first + draft.shape(value)[1]
        node = draft.nodes.get(value)
        times = _times(draft, node)
        small = node.inputs[0] if node is not None and times is not None else value
        yield Part(first, end, value, small, times or (1,) * axes)
        first = end


def _saved(kernel: Sequence[int], times: Times) -> float:
    """Products of one channel that each number of the result takes less, in the mean."""
    return math.prod(kernel) - math.prod((k + s - 1) / s for k, s in zip(kernel, times, strict=True))


def _times(draft: Draft, node: Node | None) -> Times | None:
    """How often ``node`` repeats each pixel, axis by axis; None if it does something else, at some size."""
    if node is None or node.op not in ("upsample", "resize") or node.attrs["mode"] != "nearest":
        return None
    found = set()
    for shapes in draft.shapes:
        x, y = shapes[node.inputs[0]], shapes[node.name]
        if node.op == "upsample":
            lines = dict(enumerate(tables(x, y, node.attrs), 2))
        else:
            lines = {axis: taps(at, node.attrs) for axis, at in places(x, y, node.attrs).items()}
        times = [max(1, b // a) for a, b in zip(x, y, strict=True)]
        for axis, table in lines.items():
            if axis < 2 or [t.line for (t,) in table] != [i // times[axis] for i in range(y[axis])]:
                return None
        found.add(tuple(times[2:]))
    return found.pop() if len(found) == 1 else None


def _weight(weight: Array, channels: Sequence[tuple[int, int]], times: Times, groups: int) -> Array:
    """Those of the weights ``[K, C/groups, *taps]`` for some channels, as a layer takes them that reads small
    images: ``[C, K/groups, *taps]``, or as they are where no pixel is repeated.
    """
    if groups == 1:
        weight = np.concatenate([weight[:, first:end] for first, end in channels], 1)
    if set(times) == {1}:
        return np.ascontiguousarray(weight)
    total = weight.astype(np.float64)
    for axis, s in enumerate(times, 2):
        k, lines = total.shape[axis], np.moveaxis(total, axis, 0)
        ends = range(k - 1 + s, 0, -1)  # of the taps that meet one pixel
        total = np.moveaxis(np.stack([lines[max(0, end - s) : end].sum(0) for end in ends]), 0, axis)
    outputs, inputs, *sizes = total.shape
    total = total.reshape(groups, outputs // groups, inputs, *sizes).swapaxes(1, 2)
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(total.reshape(groups * inputs, outputs // groups, *sizes), np.float32)
