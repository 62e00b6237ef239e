"""Inputs of many bytes: threads widen what they read, with the results of cells."""

from typing import Any

import numpy as np
import pytest
from support.graphs import Graph

import bslite
from bslite import InputError, ModelSpec, reference
from bslite.engines.common.cells import MANY
from bslite.engines.cpu import engine
from bslite.engines.cpu.engine import as_taken, engine_for, prepare, trace


def scaled(kind: str, *shape: int) -> ModelSpec:
    """Bytes as floats, less a number for each channel, turned, and as they are."""
    g = Graph()
    x = g.input("x", ("N", *shape), (1, *shape), dtype=kind)
    mean = g("constant", "mean", value=np.linspace(-3, 9, shape[-1]).astype(np.float32))
    less = g("sub", "less", g("cast", "float", x, to="float32"), mean)
    order = (0, len(shape), *range(1, len(shape)))
    return g.build(g("permute", "turned", less, order=order), g("concat", "twice", x, x, axis=1))


def given(kind: str, *shape: int) -> Any:
    ends = np.iinfo(kind)
    return np.random.default_rng(0).integers(ends.min, ends.max + 1, shape).astype(kind)


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("shape", [(1, MANY // 16, 16), (3, 83, 71, 3), (1, 1, MANY + 5)], ids=str)
def test_many_bytes_come_as_they_are(kind: str, shape: tuple[int, ...]) -> None:
    spec, x = scaled(kind, *shape[1:]), given(kind, *shape)
    assert [y.dtype for y in as_taken(spec, [x])] == [kind]
    plan = prepare(spec, as_taken(spec, [x]), 2, False).plan
    assert plan.steps[0].kernel == "widen"
    want = reference.run(spec, [x], np.float32)
    for threads in (1, 2, 3, None):
        for _ in range(2):  # the second call is a prepared one
            got = bslite.run(spec, x, threads=threads)
            assert [y.tobytes() for y in got] == [np.ascontiguousarray(y).tobytes() for y in want]
    if shape[0] > 1:
        alone = [bslite.run(spec, x[i : i + 1])[0] for i in range(shape[0])]
        assert np.concatenate(alone).tobytes() == np.ascontiguousarray(want[0]).tobytes()


def test_few_bytes_and_gaps_are_cells() -> None:
    """The same values however they lie, also after a call on ones that lie side by side."""
    spec, x = scaled("uint8", 64, 64, 8), given("uint8", 2, 64, 64, 8)
    gaps, turned = np.repeat(x, 2, 3)[..., ::2], x.swapaxes(1, 2)
    assert not gaps.flags.c_contiguous
    sealed = np.frombuffer(x.tobytes(), np.uint8).reshape(x.shape)  # not to be written to
    for y in (x, gaps, turned, sealed, x):
        assert (as_taken(spec, [y])[0].itemsize == 1) == y.flags.c_contiguous
        got, want = bslite.run(spec, y), reference.run(spec, [y], np.float32)
        assert [a.tobytes() for a in got] == [np.ascontiguousarray(b).tobytes() for b in want]
    few = scaled("uint8", 8, 8)
    assert as_taken(few, [x[:, 0, :8, :]])[0].dtype == np.int32


def test_a_model_of_nothing_but_bytes() -> None:
    """What comes in goes out, as an array of its own."""
    g = Graph()
    x = g.input("x", ("N", MANY), (1, MANY), dtype="uint8")
    spec, y = g.build(g("reshape", "same", x, shape=(-1, MANY // 2, 2))), given("uint8", 2, MANY)
    made = bslite.run(spec, y)
    assert made.tobytes() == y.tobytes()
    assert not np.shares_memory(made, y)


def test_explained_and_traced() -> None:
    spec, x = scaled("uint8", 90, 70, 3), given("uint8", 1, 90, 70, 3)
    assert str(bslite.explain(spec, x, runs=2))

    values = dict(trace(spec, [x]))
    assert values["float"].tobytes() == x.astype(np.float32).tobytes()
    assert (
        bslite.run(spec, x)[0].tobytes()
        == np.ascontiguousarray(reference.run(spec, [x], np.float32)[0]).tobytes()
    )
    with pytest.raises(InputError, match="expected uint8"):
        bslite.run(spec, x.astype(np.int8))
    assert engine_for(spec).plans() > 0


def test_what_is_warm_is_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    spec, x = scaled("uint8", MANY // 16, 16), given("uint8", 1, MANY // 16, 16)
    assert "widen" in bslite.warmup(spec, [x.shape])
    monkeypatch.setattr(engine, "build_plan", None)  # no plan is made any more
    bslite.run(spec, x)


def test_what_is_explained_is_what_runs() -> None:
    x = given("uint8", 1, MANY // 16, 16)
    first = bslite.explain(scaled("uint8", MANY // 16, 16), x, runs=1).rows[0]
    assert (first.name, first.kernels, first.holds) == ("inputs", ("widen",), ("widens inputs of bytes",))
