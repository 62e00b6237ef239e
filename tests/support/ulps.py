"""Errors in units in the last place of float32."""

import numpy as np

from support.check import Array

SMALLEST = 2.0**-149


@np.errstate(over="ignore", invalid="ignore")
def ulps(got: Array, exact: Array) -> Array:
    """Error in units in the last place of the float32 nearest ``exact``; inf where only one overflows."""
    nearest = exact.astype(np.float32)
    unit = np.maximum(np.spacing(np.abs(nearest)).astype(np.float64), SMALLEST)
    error = np.abs(got.astype(np.float64) - exact) / unit
    both = np.isinf(got) & np.isinf(nearest) & (np.signbit(got) == np.signbit(nearest))
    both |= np.isnan(got) & np.isnan(nearest)
    return np.where(both, 0.0, np.where(np.isfinite(got) == np.isfinite(nearest), error, np.inf))
