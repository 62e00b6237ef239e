"""Support vector machines of ai.onnx.ml, against onnxruntime."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
from support.noise import noise
from support.onnx_classical import FEATURES, ROWS, agree, ml, node

import bslite
from bslite.onnx.host.algebra import squared_distances


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("coupled", [False, True])
def test_classifiers_of_support_vectors(kernel: str, classes: int, coupled: bool) -> None:
    compiled = agree(machine(kernel, classes, coupled), x=noise(9, FEATURES))
    x = noise(3, FEATURES)
    assert compiled(x).scores.tobytes() == compiled(x).scores.tobytes()


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("coupled", [False, True])
def test_transformed_scores_of_support_vectors(transform: str, classes: int, coupled: bool) -> None:
    """onnxruntime takes no softmax of the lone score of two classes."""
    agree(machine("RBF", classes, coupled, transform), x=noise(9, FEATURES))


def test_a_score_that_onnxruntime_leaves_open_is_refused() -> None:
    bslite.compile(machine("RBF", 2, True, "PROBIT"))(noise(9, FEATURES))
    with pytest.raises(bslite.UnsupportedError, match="of which the other's is left open"):
        bslite.compile(machine("RBF", 2, False, "PROBIT"))(noise(9, FEATURES))


def test_many_support_vectors_take_little_memory() -> None:
    """Far less than a difference for every row, vector and feature: 128 MB."""
    a, b = noise(160, 100), noise(1000, 100)
    tracemalloc.start()
    found = squared_distances(a, b)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 8e6
    want = np.array([((row.astype(np.float64) - b) ** 2).sum(1) for row in a])
    np.testing.assert_allclose(found, want, rtol=1e-13)
    assert found[7].tobytes() == squared_distances(a[7:8], b).tobytes()


def machine(kernel: str, classes: int, coupled: bool, transform: str = "NONE") -> bytes:
    """A classifier of 2, 3 and 4 support vectors of each class."""
    rng = np.random.default_rng(3)
    each = [2, 3, 4][:classes]
    total, pairs = sum(each), classes * (classes - 1) // 2
    given: dict[str, Any] = {
        "kernel_type": kernel, "kernel_params": [0.3, 0.2, 2.0], "vectors_per_class": each,
        "support_vectors": rng.normal(size=total * FEATURES).tolist(), "rho": rng.normal(size=pairs).tolist(),
        "coefficients": rng.normal(size=(classes - 1) * total).tolist(),
        "classlabels_ints": [5, 3, 9][:classes], "post_transform": transform,
    }  # fmt: skip
    if coupled:
        given |= {"prob_a": [-1.5] * pairs, "prob_b": [0.1] * pairs}
    return ml([node("SVMClassifier", ["x"], ["label", "scores"], **given)], ROWS, ["label", "scores"], 1)


@pytest.mark.parametrize("kernel", ["LINEAR", "RBF"])
@pytest.mark.parametrize("one_class", [0, 1])
def test_regressors_of_support_vectors(kernel: str, one_class: int) -> None:
    rng = np.random.default_rng(4)
    given = {
        "kernel_type": kernel, "kernel_params": [0.3, 0.0, 3.0], "n_supports": 5, "one_class": one_class,
        "support_vectors": rng.normal(size=5 * FEATURES).tolist(), "rho": [0.25],
        "coefficients": rng.normal(size=5).tolist(),
    }  # fmt: skip
    made = ml([node("SVMRegressor", ["x"], ["y"], **given)], ROWS, ["y"], 1)
    agree(made, x=noise(9, FEATURES))
