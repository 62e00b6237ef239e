"""Branches that read one value and are added: convolutions or linear layers become one, with summed weights.

A layer is linear in its weights: ``conv(x, V) + conv(x, W) = conv(x, V + W)``, if the taps of one filter are
among those of the other. So a filter of 1 x 1 beside one of 3 x 3, a batch norm of their input beside both
(RepVGG, arXiv 2101.03697), or two thin matrices beside a full one (LoRA, arXiv 2106.09685), cost nothing.
Weights are added in float64 and rounded once.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from typing import NamedTuple

import numpy as np

from bslite.cache import Derived
from bslite.passes.ahead import described
from bslite.passes.channels import batch_norm_scale_shift
from bslite.passes.draft import Draft
from bslite.passes.families import CONVS
from bslite.spec import Array, ModelSpec, Node

MOST = 32  # terms of a sum that are looked at
PART = 1024  # terms of a running sum: engines sum longer ones in parts
WORSE = 2.0  # times as far from the truth that one sum may be as two
LINEAR = (*CONVS, "linear")
ITSELF = ("itself",)  # how a value is made of itself

#: For each axis first, end and step of the taps that another filter's lie on.
Places = tuple[tuple[int, int, int], ...]


class Filter(NamedTuple):
    """How the taps of a filter lie along one axis: the first ``before`` its pixel, then each ``apart``.

    ``over``: pixels that the result has more than the input, at a stride of 1.
    """

    taps: int = 1
    before: int = 0
    apart: int = 1
    over: int = 0

    def among(self, other: "Filter") -> tuple[int, int, int] | None:
        """First, end and step of those taps of ``other`` that lie as these; None if there are none such."""
        first, off = divmod(other.before - self.before, other.apart)
        step, odd = divmod(self.apart, other.apart) if self.taps > 1 else (1, 0)
        last = first + step * (self.taps - 1)
        if off or odd or first < 0 or last >= other.taps or self.over != other.over:
            return None
        return first, last + 1, step


@dataclass(frozen=True)
class Branch:
    """A term of a sum that is linear in the value ``source``: what a layer of these weights makes of it.

    ``weight()`` is ``[K, C/groups, *taps]`` and ``bias()`` ``[K]`` or 0, in float64, made of the parameters
    ``keys``; ``how`` says the rest. ``layer``: the one layer that it is, whose weights others may join.
    """

    source: str
    op: str
    groups: int
    stride: tuple[int, ...]
    filters: tuple[Filter, ...]
    keys: tuple[str, ...]
    how: tuple[object, ...]
    weight: Callable[[], Array]
    bias: Callable[[], Array | float] = float
    layer: Node | None = None
    roundings: int = 0  # of a sum; 0: as many as it has products

    def places(self, other: "Branch") -> "Places | None":
        """The taps of ``other``, axis by axis, to which these weights can be added; None if they cannot."""
        alike = (self.source, self.op, self.stride) == (other.source, other.op, other.stride)
        if other.layer is None or not alike or self.groups % other.groups:
            return None
        if self.how == ITSELF and self.groups != other.groups:
            return None  # the store of a dense layer adds it exactly, which bfloat16 weights would not
        found = [mine.among(its) for mine, its in zip(self.filters, other.filters, strict=True)]
        return None if None in found else tuple(place for place in found if place is not None)


def one_branch(spec: ModelSpec, derived: Derived | None = None) -> ModelSpec:
    """The model with such branches as one, where a sum alone reads them."""
    draft = Draft(spec, derived)
    for name in list(draft.nodes):
        while _two_in_one(draft, name):
            pass
    return draft.spec_now()


def _two_in_one(draft: Draft, name: str) -> bool:
    """Make one of two terms of the sum ``name``; whether there are such."""
    node = draft.nodes.get(name)
    if node is None or node.op != "add":
        return False
    terms = list(_terms(draft, node))
    near = terms[:MOST]
    if max(Counter(value for term in near for value in _below(draft, term)).values()) == 1:
        return False  # no two read one value: most sums, whose shapes nobody needs to know
    seen = [(i, branch) for i, term in enumerate(near) for branch in _branches(draft, term)]
    for (i, mine), (j, its) in permutations(seen, 2):
        places = mine.places(its) if i != j else None
        if places is not None and draft.alike(terms[i], terms[j]):
            rest = [term for k, term in enumerate(terms) if k not in (i, j)]
            if _joined(draft, name, mine, its, places, rest):
                return True
    return False


def _terms(draft: Draft, node: Node) -> Iterator[str]:
    """The terms of a sum, through sums that nothing else reads."""
    for name in node.inputs:
        before = draft.alone(name)
        if before is not None and before.op == "add" and node.inputs.count(name) == 1:
            yield from _terms(draft, before)
        else:
            yield name


def _below(draft: Draft, term: str) -> set[str]:
    """The values that a term may be linear in."""
    found, node = {term}, draft.alone(term)
    for _ in range(2):
        if node is not None and node.op in (*LINEAR, "batch_norm"):
            found.add(node.inputs[0])
            node = draft.nodes.get(node.inputs[0])
    return found


def _joined(draft: Draft, name: str, mine: Branch, its: Branch, places: Places, rest: list[str]) -> bool:
    """Write the sum ``name`` as one layer of both branches' weights, plus the ``rest``; whether that is as
    accurate, and the weights are numbers of float32.
    """
    layer, own, others = its.layer, mine.weight(), its.weight()
    assert layer is not None
    if not _accurate(own, mine.roundings, others):
        return False
    with np.errstate(over="ignore"):
        bias = np.asarray(mine.bias() + its.bias() + np.zeros(len(own)), np.float32)
        arrays = {"weight": _sum(own, mine.groups, others, its.groups, places), "bias": bias}
    if not all(np.isfinite(array).all() for array in arrays.values()):
        return False
    keys = {role: f"{name}/branches.{len(rest)}.{role}" for role in arrays}
    for role, array in arrays.items():
        about = (f"branches {role}", mine.how, its.how, mine.groups, its.groups, places)
        what, sources = described(about, draft, (*mine.keys, *its.keys))
        draft.hold(keys[role], what, sources, array)
    made = Node(name if not rest else f"{name}/branches", layer.op, layer.inputs, keys, layer.attrs)
    before = []
    for i, term in enumerate(rest):
        before.append(made)
        made = Node(f"{name}/sum{i}", "add", (made.name, term))
    draft.put(Node(name, made.op, made.inputs, made.params, made.attrs), *before)
    return True


def _accurate(own: Array, roundings: int, others: Array) -> bool:
    """Whether a sum of both weights' products is hardly less accurate than two sums.

    A sum of n terms is rounded n times, at about half of its size in the mean. In one sum, what ``own`` adds
    is rounded as often as the rest: too often for an image beside a filter of small weights and many taps.
    Sizes are taken for inputs of one size that are independent. ``roundings``: of the sum of ``own`` apart.
    """
    own_size, size = float((own**2).sum()), float((others**2).sum())
    many = min(others[0].size, PART)
    apart = many * size + min(roundings or own[0].size, PART) * own_size + 2 * (own_size + size)
    return many * (own_size + size) <= WORSE**2 * apart


def _sum(own: Array, groups: int, others: Array, fewer: int, places: Places) -> Array:
    """The sum of both weights: ``own`` at some taps of ``others``, at the channels of each of its groups."""
    total = others.copy()
    k, c, *taps = own.shape
    parts = groups // fewer
    wide = np.zeros((fewer, parts, k // groups, parts, c, *taps))
    for part in range(parts):
        wide[:, part, :, part] = own.reshape(fewer, parts, k // groups, c, *taps)[:, part]
    taken = (slice(None), slice(None), *(slice(*place) for place in places))
    total[taken] += wide.reshape(k, parts * c, *taps)
    return np.ascontiguousarray(total, np.float32)


def _branches(draft: Draft, name: str) -> Iterator[Branch]:
    """The ways to see a value as a term that is linear in another one, or in itself."""
    shape, node = draft.shape(name), draft.alone(name)
    if draft.dtypes[name] != "float32":
        return
    if node is not None and node.op in LINEAR:
        outer = _of_layer(draft, node)
        yield outer
        inner = draft.nodes.get(node.inputs[0])
        if inner is not None and inner.op == node.op:
            yield from _of_two(_of_layer(draft, inner), outer)
    if not 3 <= len(shape) <= 5:
        return
    scaled = partial(_by_channel, len(shape) - 2, shape[1])
    if node is not None and node.op == "batch_norm":
        eps, keys = node.attrs["eps"], tuple(node.params.values())
        numbers = partial(batch_norm_scale_shift, _params(draft, node), eps)
        yield scaled(node.inputs[0], keys, (node.op, eps, *node.params), numbers)
    yield scaled(name, (), ITSELF, partial(_ones, shape[1]))


def _params(draft: Draft, node: Node) -> dict[str, Array]:
    return {role: draft.param(key) for role, key in node.params.items()}


def _of_layer(draft: Draft, node: Node) -> Branch:
    params, attrs = _params(draft, node), node.attrs
    axes = params["weight"].ndim - 2
    filters = []
    for i in range(axes):
        taps, apart = params["weight"].shape[2 + i], attrs["dilation"][i]
        before, after = attrs["padding"][i], attrs["padding"][axes + i]
        filters.append(Filter(taps, before, apart, before + after - apart * (taps - 1)))
    return Branch(
        node.inputs[0], node.op, attrs.get("groups", 1), attrs.get("stride", ()), tuple(filters),
        tuple(node.params.values()), tuple(node.params), lambda: params["weight"].astype(np.float64),
        lambda: params["bias"].astype(np.float64) if "bias" in params else 0.0, node,
    )  # fmt: skip


def _of_two(inner: Branch, outer: Branch) -> Iterator[Branch]:
    """A layer of one tap behind another as one layer, of the product of their weights; if it is one."""
    if inner.groups != 1 or outer.groups != 1 or any(step != 1 for step in outer.stride):
        return
    if any((f.taps, f.before, f.over) != (1, 0, 0) for f in outer.filters):
        return

    def flat(branch: Branch) -> Array:
        weight = branch.weight()
        return weight.reshape(len(weight), -1)

    def weight() -> Array:
        product: Array = flat(outer) @ flat(inner)
        return product.reshape(len(product), *inner.weight().shape[1:])

    def bias() -> Array:
        between = flat(outer)
        return np.asarray(between @ (inner.bias() + np.zeros(between.shape[1])) + outer.bias())

    keys, how = (*outer.keys, *inner.keys), ("two", outer.how, inner.how)
    yield Branch(
        inner.source, inner.op, 1, inner.stride, inner.filters, keys, how, weight, bias, roundings=PART
    )


def _by_channel(
    axes: int, channels: int, source: str, keys: tuple[str, ...], how: tuple[object, ...],
    numbers: Callable[[], tuple[Array, Array]],
) -> Branch:  # fmt: skip
    """``source`` times a number for each channel, plus another: a depthwise convolution of one tap."""
    return Branch(
        source, f"conv{axes}d", channels, (1,) * axes, (Filter(),) * axes, keys, how,
        lambda: numbers()[0].reshape(channels, 1, *(1,) * axes), lambda: numbers()[1],
    )  # fmt: skip


def _ones(channels: int) -> tuple[Array, Array]:
    return np.ones(channels), np.zeros(channels)
