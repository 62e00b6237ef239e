"""Dropout, values without a gradient, constants: what computes nothing."""

from bslite.reference.registry import Array, reference


@reference("dropout")
def dropout(x: Array, *, p: float) -> Array:
    """``x``: at inference nothing is dropped, and nothing has to be rescaled."""
    return x


@reference("stop_gradient")
def stop_gradient(x: Array) -> Array:
    """``x``."""
    return x


@reference("constant")
def constant(*, value: Array) -> Array:
    """``value``."""
    return value
