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
