"""Recognises functions of one value that a model writes out in small ops, and makes each one op.

Around every value that is read more than once, `Region` brings what is made of it into normal form; where
that is a formula of `bslite.passes.formulas`, the last node becomes the op and keeps its name. Other readers
keep the values in between; if they keep most of them, nothing is gained and the model stays as it is.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from bslite.passes.channels import channel_vector, trailing_array
from bslite.passes.draft import Draft
from bslite.passes.formulas import ALONG_ONE, Captures, Formula, formula_of
from bslite.passes.region import KNOWN, Region
from bslite.spec import Array, Node

LEAST = float(np.finfo(np.float32).tiny)  # of an epsilon

#: Ops that end what is written out of a value that one node alone reads: a hard sigmoid, a softplus.
ENDS = ("clamp", "relu6", "minimum", "maximum", "exp")


def recognise(draft: Draft) -> None:
    """Make every function that is written out one op."""
    for name in [*(i.name for i in draft.spec.inputs), *draft.nodes]:
        if name in draft.dtypes and _may_begin(draft, name):
            _recognise_at(draft, name)


def _may_begin(draft: Draft, name: str) -> bool:
    """Whether something may be written out of the value: nodes that it takes read it more than once."""
    found = [draft.nodes[r] for r in draft.reading.get(name, ())]
    found = [n for n in found if n.op in KNOWN]
    if not found or draft.dtypes[name] != "float32":
        return False
    node = draft.nodes.get(name)
    if node is not None and node.op == "constant":
        return False
    if len(found) > 1:
        return True
    after = found[0]
    for _ in range(3):
        if after.op in ENDS:
            return True
        readers = list(draft.reading.get(after.name, ()))
        if after.op not in ("add", "mul", "div", "sub", "neg") or len(readers) != 1:
            return False
        after = draft.nodes[readers[0]]
    return False


def _recognise_at(draft: Draft, base: str) -> None:
    region = Region(draft, base)
    for name in reversed(region.values):
        value = region.values[name]
        if name not in draft.nodes or value.lacks or not draft.alike(name, base):
            continue
        found = formula_of(value.expr)
        if found is None or not _pays(draft, region, name):
            continue
        new = _node(draft, base, name, *found)
        if new is not None:
            draft.put(new[-1], *new[:-1])


def _pays(draft: Draft, region: Region, name: str) -> bool:
    """Whether at least half of the nodes between the base and ``name`` fall away."""
    between: list[str] = []
    waiting = list(draft.nodes[name].inputs)
    while waiting:
        inner = waiting.pop()
        if inner in region.values and inner not in between:
            between.append(inner)
            waiting += draft.nodes[inner].inputs
    gone = {name}
    for inner in sorted(between, key=draft.place.__getitem__, reverse=True):
        if inner not in draft.outputs and gone >= draft.reading[inner].keys():
            gone.add(inner)
    return bool(between) and 2 * (len(gone) - 1) >= len(between) and len(gone) > 1


def _node(draft: Draft, base: str, name: str, formula: Formula, found: Captures) -> list[Node] | None:
    """The nodes that compute the formula of ``base``, the last called ``name``.

    None if the op cannot: its axes, its parameters.
    """
    attrs: dict[str, Any] = dict(formula.attrs(found))
    op, arrays = formula.op, {"weight": found.weight, "bias": found.bias}
    rank = len(draft.shape(base))
    params: dict[str, Array] | None = {}
    turned: list[int] = []  # axes, with the one that is reduced put last
    if op in ALONG_ONE and (len(found.axes) != 1 or found.weight or found.bias):
        return None
    # An engine multiplies by one over the divisor, which must be a float32.
    if op in ("normalize", "layer_norm", "rms_norm") and not attrs["eps"] >= LEAST:
        return None
    if op in ("layer_norm", "rms_norm"):
        constants = {role: c for role, key in arrays.items() if (c := draft.constant(key)) is not None}
        trailing = draft.fixed(base, found.axes)
        if trailing is not None and found.axes == tuple(range(rank - len(trailing), rank)):
            attrs["normalized_shape"] = trailing
            params = _all({role: trailing_array(c, trailing) for role, c in constants.items()})
        else:
            params = None
        if op == "layer_norm" and params is None and found.axes == tuple(range(2, rank)):
            channels = draft.fixed(base, (1,))
            if channels is None:
                return None
            op, attrs = "group_norm", {"num_groups": channels[0], "eps": found.eps}
            vectors = {role: channel_vector(c, rank, 1, channels[0]) for role, c in constants.items()}
            params = _all(vectors)
        elif params is None and trailing is not None and len(trailing) == 1:
            axis = found.axes[0]
            attrs["normalized_shape"] = trailing
            vectors = {role: channel_vector(c, rank, axis, trailing[0]) for role, c in constants.items()}
            params, turned = _all(vectors), [*range(axis), *range(axis + 1, rank), axis]
        if params is None or (op == "rms_norm" and "bias" in params):
            return None
    keys = {role: f"{name}/{role}" for role in params or {}}
    for role, array in (params or {}).items():
        constant = draft.constant(arrays[role])
        assert constant is not None
        draft.derive(keys[role], ("written out", array.shape), [constant], partial(np.array, array))
    if not turned:
        return [Node(name, op, (base,), keys, attrs)]
    back = sorted(range(rank), key=turned.__getitem__)
    return [
        Node(f"{name}/turned", "permute", (base,), attrs={"order": turned}),
        Node(f"{name}/{op}", op, (f"{name}/turned",), keys, attrs),
        Node(name, "permute", (f"{name}/{op}",), attrs={"order": back}),
    ]


def _all(arrays: Mapping[str, Array | None]) -> dict[str, Array] | None:
    """The arrays, or None if one of them is."""
    found = {role: array for role, array in arrays.items() if array is not None}
    return found if len(found) == len(arrays) else None
