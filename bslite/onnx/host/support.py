"""Support vector machines (the operator set ai.onnx.ml), as libsvm and liblinear train them.

C.-C. Chang, C.-J. Lin: LIBSVM, a library for support vector machines; pairs of classes vote, and their
probabilities are coupled (T.-F. Wu, C.-J. Lin, R. C. Weng: Probability estimates for multi-class
classification).
https://github.com/onnx/onnx/blob/main/docs/Operators-ml.md
"""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from bslite.errors import InputError, SpecError
from bslite.onnx.host.classical import ML, narrow, rows_of
from bslite.onnx.host.node import host_op
from bslite.onnx.host.scores import finished, labelled
from bslite.spec import Array

Numbers = Sequence[float]


def _alike(x: Array, vectors: Array, kind: str, parameters: Numbers | None) -> Array:
    """[rows, vectors]: the kernel of each pair."""
    if x.shape[1] != vectors.shape[1]:
        raise InputError(f"{x.shape[1]} features, expected {vectors.shape[1]}")
    gamma, coef0, degree = [*(parameters or ()), 0.0, 0.0, 0.0][:3]
    if kind == "RBF":
        apart = np.square(x[:, None] - vectors).sum(2)
        return np.asarray(np.exp(-gamma * apart))
    product = x @ vectors.T
    if kind == "LINEAR":
        return np.asarray(product)
    if kind not in ("POLY", "SIGMOID"):
        raise SpecError(f"kernel_type {kind!r}")
    moved = product * gamma + coef0
    return np.asarray(np.tanh(moved) if kind == "SIGMOID" else moved**degree)


@host_op(f"{ML}SVMRegressor")
def svm_regressor(
    x: Array, *, coefficients: Numbers, kernel_params: Numbers | None, kernel_type: str, n_supports: int,
    one_class: int, post_transform: str, rho: Numbers, support_vectors: Numbers | None, exact: bool,
) -> Array:  # fmt: skip
    """[rows, 1]: sums over support vectors, or 1 and -1 for what is and is not of the one class."""
    rows, weights = rows_of(x).astype(np.float64), np.asarray(coefficients, np.float64)
    if n_supports:
        vectors = np.asarray(support_vectors, np.float64).reshape(n_supports, -1)
        made = _alike(rows, vectors, kernel_type, kernel_params) @ weights
    else:
        made = _alike(rows, weights.reshape(1, -1), "LINEAR", None)[:, 0]
    made = (made + rho[0])[:, None]
    if one_class:
        made = np.where(made > 0, 1.0, -1.0)
    return narrow(finished(made, post_transform), exact)


@host_op(f"{ML}SVMClassifier")
def svm_classifier(
    x: Array, *, classlabels_ints: Sequence[int] | None, classlabels_strings: Sequence[str] | None,
    coefficients: Numbers, kernel_params: Numbers | None, kernel_type: str, post_transform: str,
    prob_a: Numbers | None, prob_b: Numbers | None, rho: Numbers, support_vectors: Numbers | None,
    vectors_per_class: Sequence[int] | None, exact: bool,
) -> tuple[Array, Array]:  # fmt: skip
    """The label of each row, and scores: of pairs of classes, or probabilities [rows, classes]."""
    labels: Sequence[Any] = classlabels_ints or classlabels_strings or (0,)
    rows, weights = rows_of(x).astype(np.float64), np.asarray(coefficients, np.float64)
    count = len(labels)
    if not vectors_per_class:
        scores = _alike(rows, weights.reshape(count, -1), "LINEAR", None) + rho[0]
        return labelled(labels, scores.argmax(1)), narrow(finished(scores, post_transform), exact)
    if len(vectors_per_class) != count or len(rho) < count * (count - 1) // 2:
        raise SpecError(f"vectors of {len(vectors_per_class)} classes, {len(rho)} pairs, {count} labels")
    ends = np.cumsum([0, *vectors_per_class]).tolist()
    vectors = np.asarray(support_vectors, np.float64).reshape(ends[-1], -1)
    kernel, table = _alike(rows, vectors, kernel_type, kernel_params), weights.reshape(-1, ends[-1])
    votes, scores = np.zeros((len(rows), count)), np.zeros((len(rows), count * (count - 1) // 2))
    for at, (i, j) in enumerate(combinations(range(count), 2)):
        of_i, of_j = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
        scores[:, at] = kernel[:, of_i] @ table[j - 1, of_i] + kernel[:, of_j] @ table[i, of_j] + rho[at]
        votes[:, i] += scores[:, at] > 0
        votes[:, j] += scores[:, at] <= 0
    best = votes.argmax(1)
    if prob_a:
        made = _coupled(scores, np.asarray(prob_a), np.asarray(prob_b), count)
        return labelled(labels, best), narrow(finished(made, post_transform), exact)
    if count == 2:
        made = np.concatenate([-scores, scores], 1)
        if post_transform == "NONE":
            return labelled(labels, best), narrow(made, exact)
        return labelled(labels, best), narrow(finished(made, post_transform), exact)
    return labelled(labels, best), narrow(finished(scores, post_transform), exact)


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
