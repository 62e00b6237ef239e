"""The kernel function for a layer's activation, and the operands of a batch norm in a store."""

import math

from bslite.kernels.contracts.activation import IDENTITY, RELU, Activation
from bslite.kernels.contracts.record import Operand
from bslite.plan.core.builder import AnyBuilder
from bslite.spec import Node


def activation(node: Node | None) -> Activation:
    """The function and parameters of the op of ``node``; the identity for None.

    The parameters are the op's numeric attributes, in the order of its declaration.
    """
    if node is None:
        return IDENTITY
    given = [node.attrs[attr.name] for attr in node.declaration.attrs]
    name, parameters = node.op, [float(value) for value in given if not isinstance(value, (str, bool))]
    if name == "relu6":
        return Activation("clamp", 0.0, 6.0)
    if name == "clamp" and parameters == [-math.inf, math.inf]:
        return IDENTITY
    if name == "clamp" and parameters == [0.0, math.inf] and math.copysign(1.0, parameters[0]) > 0.0:
        return RELU  # but not from -0.0 on: a clamp returns -0.0 for smaller values
    if name == "gelu":
        name = f"gelu_{node.attrs['approximate']}"
    elif name == "hardsigmoid":
        default = parameters == [1 / 6, 0.5]
        name, parameters = ("hardsigmoid", []) if default else ("hardsigmoid_any", parameters)
    elif name == "silu":
        name, parameters = ("silu", []) if parameters == [1.0] else ("swish", parameters)
    return Activation(name, *parameters)


def affine(b: AnyBuilder, batch_norm: Node | None) -> tuple[Operand, Operand] | None:
    """The operands of the ``scale`` and the ``shift`` of each channel, if there is a batch norm: its result
    is ``x * scale + shift``.
    """
    if batch_norm is None:
        return None
    roles = [r for r in ("weight", "bias", "running_mean", "running_var") if r in batch_norm.params]
    keys = [batch_norm.params[r] for r in roles]
    scale, shift = (
        Operand(b.const("batch_norm", *keys, roles=roles, part=part, eps=batch_norm.attrs["eps"]), 0)
        for part in ("scale", "shift")
    )
    return scale, shift
