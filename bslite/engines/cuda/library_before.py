"""Computes in torch the layer before a convolution, for a launch that does both layers.

A prologue (`bslite.plan.cuda.gemm.prologues`) makes that layer on the way into the convolution. A call that
replaces the launch must compute both.
"""

from collections.abc import Callable, Mapping
from typing import Any

from bslite.engines.cuda.driver import Memory
from bslite.kernels.contracts.cuda.gemm import AFFINE, GATE
from bslite.ops import Shape
from bslite.plan.core.views import View
from bslite.plan.cuda.launch import CudaPlan, Launch
from bslite.plan.cuda.library import Prologue

#: Activations of a prologue that torch has, in place or not.
ACTIVATIONS = ("identity", "relu", "clamp", "silu", "hardswish")


def can(before: Prologue | None) -> bool:
    """Whether torch has what the step's prologue does; also where it has none."""
    return before is None or before.activation.function in ACTIVATIONS


def tensors(
    plan: CudaPlan, step: Launch, constants: Mapping[str, Memory], params: Mapping[str, Shape],
    tensor: Callable[..., Any], of_view: Callable[[View | None], Any],
) -> dict[str, Any]:  # fmt: skip
    """What the prologue reads besides the convolution's x, by name. ``tensor``: one of an address, a shape
    and strides; ``of_view``: that of a view.
    """
    form = step.library
    if form is None or form.before is None:
        return {}

    def of_const(role: str, shape: Shape, strides: Shape) -> Any:
        return tensor(constants[step.operands[role][0]].address, shape, strides)

    if form.before.kind == GATE:
        return {"gate": of_view(form.before.gate)}
    if form.before.kind == AFFINE:
        shape = form.x.shape
        one = (1, shape[1], *(1,) * (len(shape) - 2))
        strides = (shape[1], 1, *(1,) * (len(shape) - 2))
        return {role: of_const(role, one, strides) for role in ("scale", "shift")}
    k, _, rows, cols = params[plan.consts[step.operands["taps"][0]].keys[0]]
    return {
        "taps": of_const("taps", (k, 1, rows, cols), (1, 1, cols * k, k)),  # [rows, cols, K] in memory
        "shifts": of_const("shifts", (k,), (1,)) if form.before.biased else None,
    }


def compute(torch: Any, form: Prologue, x: Any, beside: Mapping[str, Any]) -> Any:
    """What the convolution reads."""
    function, low, high = form.activation
    if form.kind == AFFINE:
        made = x * beside["scale"]
        made += beside["shift"]
    elif form.kind == GATE:
        made = x * beside["gate"]
    else:
        taps = beside["taps"]
        made = torch.nn.functional.conv2d(
            x, taps, beside["shifts"], form.stride, form.padding, (1, 1), taps.shape[0]
        )
    if function == "relu":
        return torch.clamp_min(made, 0, out=made)
    if function == "clamp":
        return torch.clamp(made, low, high, out=made)
    if function == "identity":
        return made
    return getattr(torch.nn.functional, function)(made, inplace=True)
