"""Support vector machines (the operator set ai.onnx.ml), as libsvm and liblinear train them.

C.-C. Chang, C.-J. Lin: LIBSVM, a library for support vector machines; pairs of classes vote, and their
probabilities are coupled (T.-F. Wu, C.-J. Lin, R. C. Weng: Probability estimates for multi-class
classification).
https://github.com/onnx/onnx/blob/main/docs/Operators-ml.md
"""

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from bslite.errors import InputError, SpecError, UnsupportedError
from bslite.onnx.host.algebra import squared_distances
from bslite.onnx.host.classical import ML, narrow, rows_of
from bslite.onnx.host.node import host_op
from bslite.onnx.host.scores import array_of, finished
from bslite.spec import Array

Numbers = Sequence[float]


Kernel = Callable[[Array], Array]


def _kernel(vectors: Array, kind: str, parameters: Numbers | None) -> Kernel:
    """A function of rows: [rows, vectors], the kernel of each pair."""
    gamma, coef0, degree = [*(parameters or ()), 0.0, 0.0, 0.0][:3]
    if kind not in ("RBF", "LINEAR", "POLY", "SIGMOID"):
        raise SpecError(f"kernel_type {kind!r}")
    across = np.ascontiguousarray(vectors.T)

    def alike(x: Array) -> Array:
        rows = rows_of(x).astype(np.float64)
        if rows.shape[1] != vectors.shape[1]:
            raise InputError(f"{rows.shape[1]} features, expected {vectors.shape[1]}")
        if kind == "RBF":
            return np.asarray(np.exp(-gamma * squared_distances(rows, vectors)))
        product = rows @ across
        if kind == "LINEAR":
            return np.asarray(product)
        moved = product * gamma + coef0
        return np.asarray(np.tanh(moved) if kind == "SIGMOID" else moved**degree)

    return alike


@host_op(f"{ML}SVMRegressor")
def svm_regressor(
    x: Array, *, coefficients: Numbers, kernel_params: Numbers | None, kernel_type: str, n_supports: int,
    one_class: int, post_transform: str, rho: Numbers, support_vectors: Numbers | None, exact: bool,
    cache: dict[str, Any],
) -> Array:  # fmt: skip
    """[rows, 1]: sums over support vectors, or 1 and -1 for what is and is not of the one class."""
    weights = np.asarray(coefficients, np.float64)
    if n_supports:
        vectors = np.asarray(support_vectors, np.float64).reshape(n_supports, -1)
        alike = _kernel(vectors, kernel_type, kernel_params)
    else:
        alike, weights = _kernel(weights.reshape(1, -1), "LINEAR", None), np.ones(1)

    def call(x: Array) -> Array:
        made = (alike(x) @ weights + rho[0])[:, None]
        if one_class:
            made = np.where(made > 0, 1.0, -1.0)
        return narrow(finished(made, post_transform), exact)

    cache["call"] = call
    return call(x)


@host_op(f"{ML}SVMClassifier")
def svm_classifier(
    x: Array, *, classlabels_ints: Sequence[int] | None, classlabels_strings: Sequence[str] | None,
    coefficients: Numbers, kernel_params: Numbers | None, kernel_type: str, post_transform: str,
    prob_a: Numbers | None, prob_b: Numbers | None, rho: Numbers, support_vectors: Numbers | None,
    vectors_per_class: Sequence[int] | None, exact: bool, cache: dict[str, Any],
) -> tuple[Array, Array]:  # fmt: skip
    """The label of each row, and scores: of pairs of classes, or probabilities [rows, classes]."""
    labels, weights = array_of(classlabels_ints or classlabels_strings or (0,)), np.asarray(coefficients)
    count = len(labels)
    if vectors_per_class:
        if len(vectors_per_class) != count or len(rho) < count * (count - 1) // 2:
            raise SpecError(f"vectors of {len(vectors_per_class)} classes, {len(rho)} pairs, {count} labels")
        vectors = np.asarray(support_vectors, np.float64).reshape(sum(vectors_per_class), -1)
        alike = _kernel(vectors, kernel_type, kernel_params)
        decided = _votes(weights.reshape(-1, len(vectors)), vectors_per_class, rho)
    else:
        alike, decided = _kernel(weights.reshape(count, -1), "LINEAR", None), None
    lone = decided is not None and count == 2 and not prob_a
    if lone and post_transform == "PROBIT":
        raise UnsupportedError("PROBIT of the one score of two classes, of which the other's is left open")
    a, b = np.asarray(prob_a or ()), np.asarray(prob_b or ())

    def call(x: Array) -> tuple[Array, Array]:
        kernel = alike(x)
        if decided is None:
            scores = kernel + rho[0]
            return labels[scores.argmax(1)], narrow(finished(scores, post_transform), exact)
        votes, scores = decided(kernel)
        if prob_a:
            made = finished(_coupled(scores, a, b, count), post_transform)
        elif not lone:
            made = finished(scores, post_transform)
        elif post_transform in ("SOFTMAX", "SOFTMAX_ZERO"):  # as onnxruntime has it, which takes neither
            made = np.concatenate([1 - scores, scores], 1)
        else:
            made = finished(np.concatenate([-scores, scores], 1), post_transform)
        return labels[votes.argmax(1)], narrow(made, exact)

    cache["call"] = call
    return call(x)


def _votes(
    table: Array, vectors_per_class: Sequence[int], rho: Numbers
) -> Callable[[Array], tuple[Array, Array]]:
    """A function of the kernels of rows and support vectors, which makes [rows, classes] votes and [rows,
    pairs] scores. ``table`` [classes - 1, vectors].
    """
    ends, count = np.cumsum([0, *vectors_per_class]).tolist(), len(vectors_per_class)

    def decided(kernel: Array) -> tuple[Array, Array]:
        votes, scores = np.zeros((len(kernel), count)), np.zeros((len(kernel), count * (count - 1) // 2))
        for at, (i, j) in enumerate(combinations(range(count), 2)):
            of_i, of_j = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
            scores[:, at] = kernel[:, of_i] @ table[j - 1, of_i] + kernel[:, of_j] @ table[i, of_j] + rho[at]
            votes[:, i] += scores[:, at] > 0
            votes[:, j] += scores[:, at] <= 0
        return votes, scores

    return decided


def _coupled(scores: Array, a: Array, b: Array, count: int) -> Array:
    """[rows, classes]: probabilities that agree with those of pairs as well as may be."""
    pairs = np.clip(1 / (1 + np.exp(scores * a + b)), 1e-7, 1 - 1e-7)
    made = np.empty((len(scores), count))
    for n, row in enumerate(pairs):
        r = np.zeros((count, count))
        for value, (i, j) in zip(row, combinations(range(count), 2), strict=True):
            r[i, j], r[j, i] = value, 1 - value
        made[n] = _couple(r)
    return made


def _couple(r: Array) -> Array:
    """The probabilities of classes for those of pairs ``r[i, j]``: the second method of Wu, Lin and Weng."""
    count = len(r)
    q = -r.T * r
    np.fill_diagonal(q, np.square(r).sum(0))
    p = np.full(count, 1 / count)
    for _ in range(max(100, count)):
        qp = q @ p
        pqp = p @ qp
        if np.abs(qp - pqp).max() < 0.005 / count:
            break
        for t in range(count):
            move = (pqp - qp[t]) / q[t, t]
            p[t] += move
            pqp = (pqp + move * (move * q[t, t] + 2 * qp[t])) / (1 + move) ** 2
            qp = (qp + move * q[t]) / (1 + move)
            p /= 1 + move
    return p
