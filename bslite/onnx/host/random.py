"""Operators that draw random numbers: new ones at each run, the same series for the same seed.

The numbers are NumPy's, not onnxruntime's; their distribution is what a model is promised.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bslite.errors import InputError
from bslite.frontends.onnx.tensors import dtype_name, sizes
from bslite.onnx.host.node import host_op
from bslite.spec import Array

_common = [np.random.default_rng()]


def seed(number: int) -> None:
    """Begin the series of numbers of nodes without a seed of their own anew."""
    _common[0] = np.random.default_rng(number)


def _generator(cache: dict[str, Any], own: float | None) -> np.random.Generator:
    if own is None:
        return _common[0]
    if "generator" not in cache:
        cache["generator"] = np.random.default_rng(int(np.float32(own).view(np.uint32)))
    found: np.random.Generator = cache["generator"]
    return found


@host_op("RandomNormal", "RandomNormalLike", first=True)
def normal(
    like: Array | None = None, *, cache: dict[str, Any], mean: float, scale: float, seed: float | None,
    dtype: int | None = None, shape: Sequence[int] = (),
) -> Array:  # fmt: skip
    """Normal numbers of that mean and standard deviation, in a shape given or that of the input."""
    drawn = _generator(cache, seed).normal(mean, abs(scale), _sizes(shape, like))
    return drawn.astype(_dtype(dtype, like))


@host_op("RandomUniform", "RandomUniformLike", first=True)
def uniform(
    like: Array | None = None, *, cache: dict[str, Any], low: float, high: float, seed: float | None,
    dtype: int | None = None, shape: Sequence[int] = (),
) -> Array:  # fmt: skip
    """Numbers that are equally likely from ``low`` on and below ``high``."""
    drawn = _generator(cache, seed).random(_sizes(shape, like))
    return (low + drawn * (high - low)).astype(_dtype(dtype, like))


@host_op("Bernoulli", first=True)
def bernoulli(p: Array, *, cache: dict[str, Any], dtype: int | None, seed: float | None) -> Array:
    """1 with the probability that the input says, else 0."""
    return (_generator(cache, seed).random(p.shape) < p).astype(_dtype(dtype, p))


@host_op("Multinomial", first=True)
def multinomial(
    logits: Array, *, cache: dict[str, Any], dtype: int, sample_size: int, seed: float | None
) -> Array:
    """[rows, samples]: classes drawn by the logarithms of their probabilities, which need not sum up to 1."""
    if logits.ndim != 2:
        raise InputError(f"{logits.dtype} {list(logits.shape)}, expected [rows, classes]")
    wide = logits.astype(np.float64)
    power = np.exp(wide - wide.max(1, keepdims=True)).cumsum(1)
    drawn = _generator(cache, seed).random((len(wide), sample_size)) * power[:, -1:]
    made = np.empty(drawn.shape, np.int64)
    for row, ends in enumerate(power):
        made[row] = ends.searchsorted(drawn[row], side="right")
    return np.minimum(made, wide.shape[1] - 1).astype(np.dtype(dtype_name(dtype)))


def _dtype(asked: int | None, like: Array | None) -> np.dtype[Any]:
    """The type that a node asks for by ONNX's number, else that of its input."""
    if asked:
        return np.dtype(dtype_name(asked))
    return np.dtype(np.float32) if like is None else like.dtype


def _sizes(shape: Sequence[int], like: Array | None) -> tuple[int, ...]:
    return sizes(shape, "its result") if like is None else like.shape
