"""Computes in torch the layer before a convolution, for a launch that does both layers.

A prologue (`bslite.plan.cuda.gemm.prologues`) makes that layer on the way into the convolution. A call that
replaces the launch must compute both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bslite.engines.cuda.driver import Memory
from bslite.ops import Shape
from bslite.plan.cuda.launch import CudaPlan, Launch

#: Activations of a prologue that torch has, in place or not.
ACTIVATIONS = ("identity", "relu", "clamp", "silu", "hardswish")


def can(form: Mapping[str, Any]) -> bool:
    """Whether torch has what the step's prologue does; also where it has none."""
    return "before" not in form or form["before"]["function"] in ACTIVATIONS


def tensors(
    plan: CudaPlan, step: Launch, constants: Mapping[str, Memory], params: Mapping[str, Shape],
    tensor: Callable[..., Any], gate: Any,
) -> dict[str, Any]:  # fmt: skip
    """The tensors that the prologue reads besides the convolution's x, by name.

    ``tensor`` makes one from an address, a shape and strides; ``gate`` is the tensor of the view of that
    name, if there is one.
    """
    form = step.library
    if "before" not in form:
        return {}

    def of_const(role: str, shape: Shape, strides: Shape) -> Any:
        return tensor(constants[step.operands[role][0]].address, shape, strides)

    kind = form["before"]["kind"]
    if kind == "gate":
        return {"gate": gate}
    if kind == "affine":
        shape = form["x"]["shape"]
        one = (1, shape[1], *(1,) * (len(shape) - 2))
        strides = (shape[1], 1, *(1,) * (len(shape) - 2))
        return {role: of_const(role, one, strides) for role in ("scale", "shift")}
    k, _, rows, cols = params[plan.consts[step.operands["taps"][0]].keys[0]]
    biased = step.operands["shifts"][0] != step.operands["taps"][0]
    return {
        "taps": of_const("taps", (k, 1, rows, cols), (1, 1, cols * k, k)),  # [rows, cols, K] in memory
        "shifts": of_const("shifts", (k,), (1,)) if biased else None,
    }


def compute(torch: Any, form: Mapping[str, Any], x: Any, beside: Mapping[str, Any]) -> Any:
    """The tensor that the convolution reads."""
    kind, function = form["kind"], form["function"]
    if kind == "affine":
        made = x * beside["scale"]
        made += beside["shift"]
    elif kind == "gate":
        made = x * beside["gate"]
    else:
        taps = beside["taps"]
        made = torch.nn.functional.conv2d(
            x, taps, beside["shifts"], form["stride"], form["padding"], (1, 1), taps.shape[0]
        )
    if function == "relu":
        return torch.clamp_min(made, 0, out=made)
    if function == "clamp":
        return torch.clamp(made, form["a"], form["b"], out=made)
    if function == "identity":
        return made
    return getattr(torch.nn.functional, function)(made, inplace=True)
