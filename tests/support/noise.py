"""Seeded noise, the same in every test."""

from typing import Any

import numpy as np
import numpy.typing as npt


def noise(*shape: int, seed: int = 0, scale: float = 1.0, shift: float = 0.0) -> npt.NDArray[Any]:
    """Normal noise, float32."""
    return np.asarray(np.random.default_rng(seed).standard_normal(shape) * scale + shift, np.float32)


def images(batch: int, *size: int) -> npt.NDArray[Any]:
    """Normal noise ``[batch, 3, *size]``, float32; each batch size has its own."""
    return noise(batch, 3, *size, seed=batch)


def uniform(*shape: int, seed: int = 0) -> npt.NDArray[Any]:
    """Noise between -1 and 1, float32."""
    return np.asarray(np.random.default_rng(seed).uniform(-1, 1, shape), np.float32)
