"""Inputs and parameters for a sample case of an op: what its tests and benchmarks run on."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from bslite.ops.core import Case, Kind, Op, Shape

Array = npt.NDArray[Any]
Draw = Callable[[np.random.Generator, Shape], Array]


def _contraction_weight(rng: np.random.Generator, shape: Shape) -> Array:
    """Outputs keep the inputs' spread: standard deviation 1/sqrt(fan-in), ``shape`` is [K, fan-in...]."""
    return rng.standard_normal(shape) / math.sqrt(math.prod(shape[1:]))


def _norm_weight(rng: np.random.Generator, shape: Shape) -> Array:
    """Around one, a few negative, none that would hide its channel."""
    return rng.uniform(0.5, 2.0, shape) * rng.choice([1.0, 1.0, 1.0, -1.0], shape)


def _variance(rng: np.random.Generator, shape: Shape) -> Array:
    """Positive, small enough in places for eps to matter."""
    return rng.uniform(0.05, 2.0, shape)


def _normal(rng: np.random.Generator, shape: Shape) -> Array:
    return rng.standard_normal(shape)


def _step(rng: np.random.Generator, shape: Shape) -> Array:
    """Of 8-bit weights of a contraction of a few dozen terms."""
    return rng.uniform(0.0005, 0.003, shape)


def _draw(op: Op, role: str) -> Draw:
    if role == "scale_hh" or (role == "scale" and "zero" in op.params):
        return _step
    if role == "running_var":
        return _variance
    if role.startswith("weight"):
        return _contraction_weight if op.kind is Kind.CONTRACTION else _norm_weight
    return _normal


def _input(rng: np.random.Generator, op: Op, spread: float, shape: Shape) -> Array:
    """Normal noise, or what the op is defined for."""
    if op.sample_range is None:
        return np.asarray(spread * _normal(rng, shape))
    return np.asarray(rng.uniform(*op.sample_range, shape))


def sample(op: Op, case: Case, seed: int) -> tuple[list[Array], dict[str, Array]]:
    """Inputs of the case's dtypes, and parameters by role; the same for the same ``seed``."""
    rng = np.random.default_rng(seed)
    spread = 3.0 if op.kind is Kind.POINTWISE else 1.0  # activations bend as far out as 6
    dtypes = [*case.dtypes, *["float32"] * (len(case.inputs) - len(case.dtypes))]

    def draw(shape: Shape, dtype: str) -> Array:
        if dtype == "float32":
            return np.asarray(_input(rng, op, spread, shape), np.float32)
        low, high = (0, 2) if dtype == "bool" else case.integers
        return np.asarray(rng.integers(low, high, shape), dtype)

    inputs = [draw(shape, dtype) for shape, dtype in zip(case.inputs, dtypes, strict=True)]
    params = {}
    for role, size in case.params.items():
        dtype = case.param_dtypes.get(role, "float32")
        params[role] = (
            np.asarray(_draw(op, role)(rng, size), np.float32)
            if dtype == "float32"
            else np.asarray(rng.integers(-127, 128, size), dtype)
        )
    return inputs, params
