"""Gradients as models: from a ModelSpec, one that also makes the gradients of its inputs and parameters."""

from bslite.gradients.transform import gradient

__all__ = ["gradient"]
