"""Gradients as models: from a ModelSpec, one that also makes the gradients of its inputs and parameters."""

from bslite.gradients.transform import gradient
from bslite.gradients.weights import weights_as_inputs

__all__ = ["gradient", "weights_as_inputs"]
