"""`bslite.ray.Predictor` on batches, without Ray: columns in, columns out, errors that name the column."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.graphs import Graph, one_op

import bslite
import bslite.ray
from bslite.errors import EngineError, FileError, InputError


def noise(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def head_and_tail() -> bslite.ModelSpec:
    graph = Graph("two")
    graph.input("x", ("N", 4))
    return graph.build(graph("relu", "head", "x"), graph("sigmoid", "tail", "x"))


def image() -> bslite.ModelSpec:
    graph = Graph("image")
    graph.input("x", ("N", 3, "H", "W"), example=(1, 3, 8, 8))
    return graph.build(graph("relu", "y", "x"))


def ragged(*rows: Any) -> Any:
    column = np.empty(len(rows), object)
    for i, row in enumerate(rows):
        column[i] = row
    return column


def test_outputs_are_new_columns_and_others_are_kept() -> None:
    batch = {"id": np.arange(5), "x": noise(5, 4)}
    made = bslite.ray.Predictor(head_and_tail())(batch)
    assert list(made) == ["id", "x", "head", "tail"]
    assert made["id"] is batch["id"]
    want = bslite.run(head_and_tail(), batch["x"])
    assert [made[n].tobytes() for n in ("head", "tail")] == [y.tobytes() for y in want]


def test_columns_are_named_by_the_caller() -> None:
    predict = bslite.ray.Predictor(head_and_tail(), inputs={"x": "features"}, outputs={"tail": "score"})
    assert list(predict({"features": noise(2, 4)})) == ["features", "score"]


@pytest.mark.parametrize("rows", [1, 3])
def test_rows_of_different_shapes(rows: int) -> None:
    x = [noise(3, 4 + i % 2, 6) for i in range(rows)]
    made = bslite.ray.Predictor(image())({"x": ragged(*x)})["y"]
    assert len(made) == rows
    for y, given in zip(made, x, strict=True):
        assert y.tobytes() == np.maximum(given, 0).tobytes()


def test_rows_of_one_shape_in_a_ragged_column_make_an_array() -> None:
    made = bslite.ray.Predictor(image())({"x": ragged(noise(3, 4, 5), noise(3, 4, 5))})["y"]
    assert made.shape == (2, 3, 4, 5)


def test_a_batch_of_one_takes_rows_one_by_one() -> None:
    x = noise(5, 4)
    made = bslite.ray.Predictor(one_op("relu", (1, 4)), outputs={"layer": "y"})({"x0": x})
    assert made["y"].tobytes() == np.maximum(x, 0).tobytes()


def test_no_rows_make_no_rows() -> None:
    made = bslite.ray.Predictor(image())({"x": noise(0, 3, 8, 8), "id": np.arange(0)})
    assert made["y"].shape == (0, 3, 0, 0)
    assert made["y"].dtype == np.float32


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ({"img": noise(2, 4)}, r"no column 'x' for input x: float32\[N, 4\]; there are 'img': say which"),
        ({"x": noise(2, 4).astype(float)}, "column 'x', for input .*, is float64; bslite does not cast"),
        ({"x": noise(2, 4, 1)}, r"column 'x', for input .*, has rows of shape \[4, 1\]"),
        ({"x": noise(2, 5)}, r"axis 1 is 5, should be 4 \(input 'x' is column 'x'\)"),
        ({"x": ragged(noise(4), None)}, "column 'x', for input .*, has a NoneType in row 1"),
        ({"x": [1, 2]}, "column 'x', for input .*, is a list; expected a NumPy array"),
        ({"x": noise(2, 4), "head": noise(2)}, "there is a column 'head' already: name the output's column"),
        (noise(2, 4), "a batch is a ndarray; expected a dict of NumPy arrays"),
    ],
)
def test_an_error_names_the_column(batch: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        bslite.ray.Predictor(head_and_tail())(batch)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ({"inputs": {"image": "x"}}, "the model has no input 'image'; it has 'x'"),
        ({"outputs": {"logits": "y"}}, "the model has no output 'logits'; it has 'head', 'tail'"),
        ({"outputs": {"head": "y", "tail": "y"}}, "the column 'y' is named for several outputs"),
    ],
)
def test_an_error_names_what_is_not_the_models(names: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        bslite.ray.Predictor(head_and_tail(), **names)


def test_a_path_that_a_worker_cannot_read(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"gone.safetensors.*a worker on .* looked for it"):
        bslite.ray.Predictor(tmp_path / "gone.safetensors")


def test_without_ray_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(EngineError, match=r"pip install 'bslite\[ray\]'"):
        bslite.ray.deployment(head_and_tail())
