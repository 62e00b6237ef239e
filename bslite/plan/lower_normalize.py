"""Normalisation layers as steps. Batch norm is a pointwise layer: its statistics are stored."""

from __future__ import annotations

from typing import Any

from bslite.passes import Layer
from bslite.plan.builder import Builder
from bslite.plan.lowering import lowers
from bslite.plan.rows import row_step, writable
from bslite.plan.sharing import Shares, share_image, share_rows
from bslite.plan.views import NO_HALO, View, size_of


@lowers("layer_norm")
def lower_layer_norm(b: Builder, layer: Layer) -> None:
    """Over the last axis in place; over more of them on a row-major copy, where they are one axis."""
    node = layer.node
    x = b.values[node.inputs[0]]
    axes = len(node.attrs["normalized_shape"])
    if axes == 1:
        x = b.read(node.inputs[0], inner=-1)
        _row_norm(b, layer, x, len(x.shape) - 1)
        return
    lead = x.shape[: len(x.shape) - axes]
    rows = b.flat(x).reshape((*lead, size_of(x.shape[len(lead) :])))
    assert rows is not None
    _row_norm(b, layer, rows, len(lead))


def _row_norm(b: Builder, layer: Layer, x: View, axis: int) -> None:
    """Append a "layer_norm" step over ``axis`` of x, the last, which may stand for several of the output's."""
    roles, args = _affine(layer)
    consts = {role: b.const("param", key) for role, key in roles.items()}
    registers = -(-x.shape[axis] // b.machine.lanes)
    row_step(b, layer, "layer_norm", x, axis, 120 + 6.0 * registers, args, consts)


def _affine(layer: Layer) -> tuple[dict[str, str], dict[str, Any]]:
    """Parameters by role, and the cells that say which of them there are."""
    params = dict(layer.node.params)
    flags = {f"has_{role}": int(role in params) for role in ("weight", "bias")}
    return params, {**flags, "eps": float(layer.node.attrs["eps"])}
