"""Activations and batch norms in the store of a CPU step, as parts of its record."""

from bslite.kernels.contracts.cpu.epilogue import Affine, Epilogue
from bslite.kernels.contracts.record import Operand
from bslite.plan.core.builder import AnyBuilder
from bslite.plan.shared.activation import activation
from bslite.plan.shared.activation import affine as affine_numbers
from bslite.spec import Node


def epilogue(node: Node | None) -> Epilogue:
    """The fields of an activation in the store: ReLUs and clamps are bounds."""
    return Epilogue.of(activation(node))


def affine(b: AnyBuilder, batch_norm: Node | None, unused: Operand) -> Affine:
    """The fields of a batch norm in the store; without one, ``unused`` stands for its operands."""
    numbers = affine_numbers(b, batch_norm)
    return Affine(0, unused, unused) if numbers is None else Affine(1, *numbers)
