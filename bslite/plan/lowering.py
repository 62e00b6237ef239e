"""Op name -> the function that turns one layer into steps. One entry per op; see the ``lower_*`` files."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from bslite.passes import Layer
from bslite.plan.builder import Builder
from bslite.spec import Node

Lowering = Callable[[Builder, Layer], None]
LOWERINGS: dict[str, Lowering] = {}


def lowers(*names: str) -> Callable[[Lowering], Lowering]:
    """Register a lowering for these ops."""

    def register(function: Lowering) -> Lowering:
        for name in names:
            if name in LOWERINGS:
                raise RuntimeError(f"op {name!r} has two lowerings")
            LOWERINGS[name] = function
        return function

    return register


def epilogue(activation: Node | None) -> dict[str, Any]:
    """Cells for an activation in the store: clamp bounds for the ReLUs, else a kernel and two parameters."""
    cells: dict[str, Any] = {"lo": -math.inf, "hi": math.inf, "activation": 0, "act_a": 0.0, "act_b": 0.0}
    if activation is None:
        return cells
    op, attrs = activation.op, activation.attrs
    if op == "relu":
        return {**cells, "lo": 0.0}
    if op == "relu6":
        return {**cells, "lo": 0.0, "hi": 6.0}
    if op == "gelu":
        return {**cells, "activation": ["activation", f"gelu_{attrs['approximate']}"]}
    parameter = {"leaky_relu": "negative_slope", "elu": "alpha"}.get(op)
    return {**cells, "activation": ["activation", op], "act_a": attrs[parameter] if parameter else 0.0}


def affine(b: Builder, batch_norm: Node | None) -> tuple[dict[str, Any], str | None, str | None]:
    """The cell that says whether the store applies ``x*scale + shift`` per channel, and both constants."""
    if batch_norm is None:
        return {"affine": 0}, None, None
    roles = [r for r in ("weight", "bias", "running_mean", "running_var") if r in batch_norm.params]
    keys = [batch_norm.params[r] for r in roles]
    scale, shift = (
        b.const("batch_norm", *keys, roles=roles, part=part, eps=batch_norm.attrs["eps"])
        for part in ("scale", "shift")
    )
    return {"affine": 1}, scale, shift
