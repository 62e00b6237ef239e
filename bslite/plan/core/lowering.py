"""Tables of lowerings: op name -> the function that turns one layer into steps, for each target."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from bslite.passes import Layer
from bslite.plan.core.builder import AnyBuilder
from bslite.registry import Registry
from bslite.spec import Node

Lowering = Callable[[Any, Layer], None]
#: Lowerings of a CPU, and of a GPU.
CPU: Registry[Lowering] = Registry("CPU lowering of op")
CUDA: Registry[Lowering] = Registry("GPU lowering of op")


def lowers(*names: str) -> Callable[[Lowering], Lowering]:
    """Register a lowering that both targets share."""

    def register(function: Lowering) -> Lowering:
        return CUDA.register(*names)(CPU.register(*names)(function))

    return register


#: The attributes that an activation's kernel takes as its two parameters.
PARAMETERS = {
    "leaky_relu": ("negative_slope",),
    "elu": ("alpha",),
    "celu": ("alpha",),
    "selu": ("alpha", "gamma"),
    "silu": ("beta",),
    "softplus": ("beta", "threshold"),
    "threshold": ("threshold", "value"),
    "shrink": ("lambd", "bias"),
    "hardsigmoid": ("alpha", "beta"),
}


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
    if op == "clamp":
        return {**cells, "lo": attrs["low"], "hi": attrs["high"]}
    name, parameters = op, [float(attrs[p]) for p in PARAMETERS.get(op, ())]
    if op == "gelu":
        name = f"gelu_{attrs['approximate']}"
    elif op == "hardsigmoid":
        default = parameters == [1 / 6, 0.5]
        name, parameters = ("hardsigmoid", []) if default else ("hardsigmoid_any", parameters)
    elif op == "silu":
        name, parameters = ("silu", []) if parameters == [1.0] else ("swish", parameters)
    act_a, act_b, *_ = [*parameters, 0.0, 0.0]
    return {**cells, "activation": ["activation", name], "act_a": act_a, "act_b": act_b}


def affine(b: AnyBuilder, batch_norm: Node | None) -> tuple[dict[str, Any], str | None, str | None]:
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
