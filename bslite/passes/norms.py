"""Batch norms in front of convolutions and linear layers go into their weights.

Behind an activation a batch norm has no layer to fold it into (x-vectors; tabular networks). Where
the next layer puts no zeros beside what it reads, ``W·(x·scale + shift) + b = (W·scale)·x + (W·shift + b)``.
"""

from collections.abc import Mapping
from functools import partial

import numpy as np

from bslite.cache import Derived
from bslite.passes.channels import batch_norm_scale_shift
from bslite.passes.draft import Draft
from bslite.passes.families import CONVS
from bslite.spec import Array, ModelSpec, Node

#: Standard deviations that a mean may be away from zero: beyond, products with values that have not been
#: centred would have lost digits that the norm keeps.
FAR = 4.0


def fold_norms_ahead(spec: ModelSpec, derived: Derived | None = None) -> ModelSpec:
    """The model without the batch norms that only layers read into whose weights they go.

    Computed in float64, rounded once. ``derived`` keeps the weights, as for `fold_batch_norms`.
    """
    if not any(n.op == "batch_norm" for n in spec.nodes):
        return spec
    draft = Draft(spec, derived)
    for norm in list(draft.nodes.values()):
        if norm.op != "batch_norm" or norm.name in draft.outputs:
            continue
        readers = [draft.nodes[name] for name in draft.reading.get(norm.name, {})]
        given = {role: draft.param(key) for role, key in norm.params.items()}
        if readers and _centred(given, norm.attrs["eps"]) and all(_takes(draft, r) for r in readers):
            for reader in readers:
                _fold(draft, norm, given, reader)
    return draft.spec_now()


def _centred(norm: Mapping[str, Array], eps: float) -> bool:
    """Whether no mean is far from zero."""
    spread = np.sqrt(norm["running_var"].astype(np.float64) + eps)
    return bool((np.abs(norm["running_mean"]) <= FAR * spread).all())


def _takes(draft: Draft, reader: Node) -> bool:
    """Whether a layer computes products of each channel with weights, and of nothing else."""
    if reader.op == "linear":
        return len(draft.shape(reader.inputs[0])) == 2
    return reader.op in CONVS and not any(reader.attrs["padding"])


def _fold(draft: Draft, norm: Node, given: Mapping[str, Array], reader: Node) -> None:
    params = {role: draft.param(key) for role, key in reader.params.items()}
    keys = dict(reader.params)
    about = reader.attrs.get("groups"), norm.attrs["eps"], tuple(params), tuple(given)
    for role in ("weight", "bias"):
        keys[role] = f"{reader.name}/ahead.{role}"
        make = partial(_folded, role, reader, params, given, norm.attrs["eps"])
        draft.derive(keys[role], (f"ahead {role}", *about), [*params.values(), *given.values()], make)
    draft.put(Node(reader.name, reader.op, norm.inputs, keys, reader.attrs))


def _folded(
    role: str, layer: Node, params: Mapping[str, Array], norm: Mapping[str, Array], eps: float
) -> Array:
    """The weight or the bias of a ``layer`` of the parameters ``params``, with the batch norm in front."""
    weight = params["weight"].astype(np.float64)
    groups = layer.attrs.get("groups", 1)
    outputs, inputs, *taps = weight.shape
    weight = weight.reshape(groups, outputs // groups, inputs, *taps)
    scale, shift = (a.reshape(groups, 1, inputs, *[1] * len(taps)) for a in batch_norm_scale_shift(norm, eps))
    if role == "weight":
        return np.ascontiguousarray((weight * scale).reshape(params["weight"].shape), np.float32)
    bias = (weight * shift).reshape(outputs, -1).sum(1) + params.get("bias", 0.0)
    return np.asarray(bias, np.float32)
