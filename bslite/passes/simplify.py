"""Drops what does nothing at inference, makes written-out attention one op, folds batch norms."""

import dataclasses
from collections.abc import Mapping
from functools import partial

import numpy as np

from bslite.cache import Derived
from bslite.ops.pointwise import IDENTITIES
from bslite.passes.attention import fuse_attention
from bslite.passes.averaged import pool_first
from bslite.passes.branches import one_branch
from bslite.passes.channels import batch_norm_scale_shift, scaled_weight, shifted_bias
from bslite.passes.complex import complex_in_parts
from bslite.passes.draft import Draft
from bslite.passes.enlarged import fold_enlargements
from bslite.passes.families import SCALED
from bslite.passes.kept import slices_first
from bslite.passes.norms import fold_norms_ahead
from bslite.passes.parts import all_blocks_widened, attention_in_parts
from bslite.passes.quads import choose_quads
from bslite.passes.rewrite import readers, substitute
from bslite.passes.rules import apply_rules
from bslite.passes.shuffled import pixels_outermost
from bslite.passes.written_out import recognise
from bslite.spec import Array, ModelSpec, Node


def drop_identities(spec: ModelSpec) -> ModelSpec:
    """The model without ops that are the identity at inference."""
    dropped = {n.name: n.inputs[0] for n in spec.nodes if n.op in IDENTITIES}
    return substitute(spec, dropped, {}, {}) if dropped else spec


def fold_batch_norms(spec: ModelSpec, derived: Derived | None = None) -> ModelSpec:
    """Fold every batch norm that alone reads a convolution or linear layer into its weights.

    Computed in float64, rounded once. The folded layer takes the batch norm's name: its value is that one's.
    ``derived`` keeps the folded weights, to share them with models of the same parameters.
    """
    derived = derived or Derived()
    reading = readers(spec)
    nodes = {n.name: n for n in spec.nodes}
    dropped: dict[str, str] = {}
    replaced: dict[str, Node] = {}
    params: dict[str, Array] = {}
    for bn in spec.nodes:
        if bn.op != "batch_norm":
            continue
        if why_not_folded(spec, bn, nodes, reading):
            continue
        before = nodes[bn.inputs[0]]
        given, norm = spec.node_params(before), spec.node_params(bn)
        keys = {role: f"{bn.name}/folded.{role}" for role in ("weight", "bias")}
        for role, key in keys.items():
            how = (before.op, before.attrs.get("groups"), bn.attrs["eps"], tuple(given), tuple(norm))
            make = partial(_folded, role, before, given, norm, bn.attrs["eps"])
            params[key] = derived.get((f"folded {role}", *how), [*given.values(), *norm.values()], make)
        dropped[before.name] = before.inputs[0]  # unread from here on
        replaced[bn.name] = dataclasses.replace(before, name=bn.name, params=keys)
    return substitute(spec, dropped, replaced, params) if replaced else spec


def _folded(
    role: str, layer: Node, given: Mapping[str, Array], norm: Mapping[str, Array], eps: float
) -> Array:
    """The weight or the bias of a ``layer`` of the parameters ``given``, with the batch norm after it."""
    scale, shift = batch_norm_scale_shift(norm, eps)
    if role == "bias":
        return np.asarray(shifted_bias(given, scale, shift), np.float32)
    return np.asarray(scaled_weight(layer, given["weight"], scale), np.float32)


def why_not_folded(
    spec: ModelSpec, bn: Node, nodes: Mapping[str, Node], reading: Mapping[str, list[Node]]
) -> str:
    """Why the batch norm ``bn`` stays a layer; empty if it folds into the one before."""
    before = nodes.get(bn.inputs[0])
    if before is None:
        return f"it normalises {bn.inputs[0]}, an input of the model"
    if before.op not in SCALED:
        return f"it normalises {before.name} ({before.op}), which has no weights to fold it into"
    if before.name in spec.outputs:
        return f"{before.name} before it is an output of the model"
    if len(reading[before.name]) != 1:
        return f"{before.name} before it is read by {len(reading[before.name])} layers"
    if before.op == "linear" and len(spec.infer_shapes([i.example for i in spec.inputs])[bn.name]) != 2:
        return f"its channel axis is not that of the linear layer {before.name}"
    return ""


def simplify(
    spec: ModelSpec, derived: Derived | None = None, dots: bool | None = False, small: bool = True
) -> ModelSpec:
    """The simplified model: dropouts go first, because one may hide a batch norm or an attention.

    ``derived`` keeps the parameters that are made of others, to share them with models of the same
    parameters. ``dots``: how the machine multiplies bytes (`choose_quads`). ``small``: whether convolutions
    read images before they are enlarged, and after they are averaged, and order channels that become pixels.
    """
    rewritten = rewrite(drop_identities(spec), derived, dots, small)
    folded = fold_batch_norms(fuse_attention(rewritten), derived)
    joined = one_branch(folded, derived)
    folded = folded if joined is folded else fold_batch_norms(joined, derived)
    folded = fold_norms_ahead(folded, derived)
    if not small:
        return folded
    return pixels_outermost(fold_enlargements(pool_first(folded, derived), derived), derived)


def simplify_for_gpu(spec: ModelSpec) -> ModelSpec:
    """The simplified model, of ops that GPUs have kernels for."""
    parts = complex_in_parts(all_blocks_widened(spec))
    simple = simplify(parts, small=False)  # it has run on no GPU
    parted = attention_in_parts(simple)
    return simple if parted is simple else rewrite(parted)


def rewrite(
    spec: ModelSpec, derived: Derived | None = None, dots: bool | None = False, first: bool = False
) -> ModelSpec:
    """The model without what does nothing, with what is written out as single ops; ``first``: slices are
    taken before what makes them.

    The rules go twice: reshapes between parts of what is written out go first, constants join what is found.
    """
    draft = Draft(spec, derived)
    apply_rules(draft)
    recognise(draft)
    if first:
        slices_first(draft)
    apply_rules(draft)
    choose_quads(draft, dots)
    return draft.spec_now()
