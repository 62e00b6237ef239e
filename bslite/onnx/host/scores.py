"""What classifiers of ai.onnx.ml share: labels, and what becomes of scores at the end."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bslite.errors import SpecError
from bslite.reference import FUNCTIONS
from bslite.spec import Array


def array_of(labels: Sequence[Any]) -> Array:
    """The labels as an array."""
    return np.array(labels, object if any(isinstance(t, str) for t in labels) else np.int64)


def _softmax(scores: Array) -> Array:
    return np.asarray(FUNCTIONS["softmax"](scores, axis=-1)) if scores.size else scores


def _softmax_zero(scores: Array) -> Array:
    """Softmax in which scores of zero stay zero."""
    there = np.abs(scores) > 1e-7
    power = np.where(there, np.exp(scores - scores.max(-1, keepdims=True)), 0)
    total = power.sum(-1, keepdims=True)
    return np.asarray(np.where(there, power / np.where(total == 0, 1, total), 0))


def _probit(scores: Array) -> Array:
    """Winitzki's approximation of the inverse error function, which is what onnxruntime computes."""
    twice = 2 * scores - 1
    log = np.log((1 - twice) * (1 + twice))
    v = 2 / (math.pi * 0.147) + 0.5 * log
    return np.asarray(math.sqrt(2) * np.sign(twice) * np.sqrt(np.sqrt(v * v - log / 0.147) - v))


FINISHED: dict[str, Callable[[Array], Array]] = {
    "NONE": lambda s: s,
    "SOFTMAX": _softmax,
    "LOGISTIC": FUNCTIONS["sigmoid"],
    "SOFTMAX_ZERO": _softmax_zero,
    "PROBIT": _probit,
}


def finished(scores: Array, transform: str) -> Array:
    """Scores [rows, classes] after a transformation. SpecError for one that ONNX has not."""
    if transform not in FINISHED:
        raise SpecError(f"post_transform {transform!r} is not one of {', '.join(FINISHED)}")
    return FINISHED[transform](scores)
