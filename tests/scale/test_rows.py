"""A compiled model as a function of rows: together the bits of alone, or an error that says why not."""

from typing import Any

import numpy as np
import pytest
from support.graphs import Graph, network, one_op

import bslite
from bslite.compiled.rows import Rows
from bslite.errors import BsliteError, InputError, SpecError


def noise(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def sum_of_two() -> bslite.ModelSpec:
    return one_op("add", ("N", 4), ("N", 4))


def test_what_is_asked_together_has_the_bits_of_alone() -> None:
    spec = network("squeezenet1_1", size=64)
    model = bslite.compile(spec)
    asked = [[noise(n, 3, *size, seed=n)] for n, size in ((1, (64, 64)), (3, (64, 64)), (2, (48, 80)))]
    made = Rows(model)([*asked, asked[0]])
    for (x,), answer in zip([*asked, asked[0]], made, strict=True):
        assert not isinstance(answer, BsliteError)
        assert answer[0].tobytes() == bslite.run(spec, x).tobytes()


def test_sizes_that_are_alike_are_computed_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    model = bslite.compile(one_op("relu", ("N", 4)))
    rows, calls = Rows(model), []
    monkeypatch.setattr(
        type(model), "__call__", lambda self, *x: calls.append(x[0].shape) or self._runner.call(x, {})
    )
    rows([[noise(1, 4)], [noise(2, 4)], [noise(3, 4)]])
    assert calls == [(6, 4)]


def test_a_wrong_request_fails_alone() -> None:
    rows = Rows(bslite.compile(sum_of_two()))
    good, wide = [noise(2, 4)] * 2, [noise(1, 5)] * 2
    uneven, none, cast = [noise(2, 4), noise(3, 4)], [noise(1, 4), None], [noise(1, 4).astype(float)] * 2
    made = rows([good, wide, uneven, none, cast, good])
    assert [type(m).__name__ for m in made] == ["Outputs", *["InputError"] * 4, "Outputs"]
    for answer, words in zip(
        made[1:5], ("axis 1 is 5", "3 rows", "a NoneType", "does not cast"), strict=True
    ):
        assert words in str(answer)


def test_a_batch_of_one_is_computed_row_by_row() -> None:
    rows = Rows(bslite.compile(one_op("relu", (1, 4))))
    assert rows.single
    x = noise(3, 4)
    made = rows([[x[i : i + 1]] for i in range(3)])
    assert np.concatenate([m[0] for m in made]).tobytes() == np.maximum(x, 0).tobytes()


def mixing(op: str, shape: Any, **attributes: Any) -> bslite.ModelSpec:
    graph = Graph("mixing")
    graph.input("x", shape)
    return graph.build(graph(op, "y", "x", **attributes))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (mixing("softmax", ("N", 4), axis=0), "mixes rows: output 'y'"),
        (
            mixing("permute", ("N", 4), order=(1, 0)),
            r"for one row, output 'y' has shape \[4, 1\]; expected one row",
        ),
        (
            mixing("relu", (2, 4)),
            r"axis 0 of every input must be open, or 1; the inputs are x: float32\[2, 4\]",
        ),
    ],
)
def test_what_takes_no_rows_is_refused(spec: bslite.ModelSpec, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        Rows(bslite.compile(spec))


def test_a_torch_module_is_refused() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(SpecError, match="axis 0 of every input"):
        Rows(bslite.compile(torch.nn.Linear(2, 2).eval()))


def test_an_example_takes_the_place_of_noise() -> None:
    model = bslite.compile(sum_of_two())
    Rows(model, {"x0": noise(3, 4), "x1": noise(3, 4)})
    for example, words in [
        ({"x0": noise(2, 4)}, "takes 'x0', 'x1'"),
        ({"x0": noise(1, 4), "x1": noise(1, 4)}, "two are needed"),
        ({"x0": noise(2, 4), "x1": noise(3, 4)}, "3 rows"),
    ]:
        with pytest.raises(InputError, match=words):
            Rows(model, example)
