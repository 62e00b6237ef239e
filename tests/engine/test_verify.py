"""`bslite.verify`: passes what is right, and fails every way of being wrong that is planted here."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support.graphs import Graph
from support.noise import noise

import bslite
from bslite import api
from bslite.engines import cpu
from bslite.spec import Array, ModelSpec
from bslite.verification import Verification, relative_error, verify


def model(outputs: tuple[str, ...] = ("fc",), seed: int = 0) -> ModelSpec:
    """Convolution, batch norm, ReLU, pooling, classifier: folding, fusing and a change of layout."""
    rng = np.random.default_rng(seed)
    g = Graph("small")
    scale, shift, mean = (rng.standard_normal(24, np.float32) for _ in range(3))
    x = g.input("x", ("N", 3, "H", "W"), (1, 3, 12, 10))
    x = g("conv2d", "conv", x, weight=rng.standard_normal((24, 3, 3, 3), np.float32), padding=1)
    variance = rng.uniform(0.5, 2, 24).astype(np.float32)
    x = g("batch_norm", "bn", x, weight=scale, bias=shift, running_mean=mean, running_var=variance)
    x = g("relu", "relu", x)
    x = g("adaptive_avg_pool2d", "pool", x, output_size=(1, 1))
    x = g("dropout", "drop", g("flatten", "flatten", x, start_axis=1, end_axis=-1), p=0.5)
    weight, bias = (rng.standard_normal(shape, np.float32) for shape in ((10, 24), 10))
    g("linear", "fc", x, weight=weight, bias=bias)
    return g.build(*outputs)


def image(batch: int = 2, seed: int = 1) -> Array:
    return noise(batch, 3, 12, 10, seed=seed)


def spoil_trace(monkeypatch: pytest.MonkeyPatch, layer: str, spoil: Any) -> None:
    honest = cpu.trace

    def trace(*args: Any, **kwargs: Any) -> Iterator[tuple[str, Array]]:
        for name, value in honest(*args, **kwargs):
            yield name, spoil(value) if name == layer else value

    monkeypatch.setattr(cpu, "trace", trace)


def with_one(at: int, change: float) -> Any:
    """``value`` with ``change`` added to one element."""

    def spoil(value: Array) -> Array:
        spoilt = value.copy()
        spoilt.flat[at] += change
        return spoilt

    return spoil


def spoil_run(monkeypatch: pytest.MonkeyPatch, spoil: Any) -> None:
    honest = api.run
    monkeypatch.setattr(api, "run", lambda *args, **kwargs: spoil(honest(*args, **kwargs), kwargs))


def test_a_right_engine_passes() -> None:
    found = verify(model(), image())
    assert found.passed
    assert not found.failures
    names = [check.name for check in found.layers]
    assert {"relu", "pool", "fc"} <= set(names)
    assert "drop" not in names
    assert [check.name for check in found.outputs] == ["fc"]
    assert all(0 < check.error < 1e-5 for check in found.outputs)
    assert found.outputs[0].shape == (2, 10)


def test_prints_a_table_and_gives_data() -> None:
    found = verify(model(), image())
    text = str(found)
    assert "relu" in text
    assert "passed" in text
    assert "FAIL" not in text
    data = json.loads(json.dumps(found.as_dict()))
    assert data["passed"] is True
    assert data["layers"][0].keys() >= {"name", "op", "shape", "error", "reference_error", "bound", "passed"}


def test_is_public() -> None:
    assert bslite.verify is verify
    assert bslite.Verification is Verification


@pytest.mark.parametrize("layer", ["relu", "pool", "fc"])
def test_a_wrong_layer_fails_and_is_named(monkeypatch: pytest.MonkeyPatch, layer: str) -> None:
    spoil_trace(monkeypatch, layer, lambda value: value * np.float32(1 + 1e-4))
    found = verify(model(), image())
    assert not found.passed
    assert [check.name for check in found.failures] == [layer]
    assert f"first out of bound: {layer}" in found.summary()
    assert "FAIL" in str(found)


def test_one_wrong_element_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil_trace(monkeypatch, "relu", with_one(-1, 0.01))
    assert [check.name for check in verify(model(), image()).failures] == ["relu"]


def test_a_wrong_answer_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil_run(monkeypatch, lambda y, kwargs: y[:, ::-1])
    found = verify(model(), image())
    assert not found.passed
    assert found.repeatable
    assert [check.op for check in found.failures] == ["output linear"]


def test_a_nan_out_of_place_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil_trace(monkeypatch, "pool", with_one(3, np.nan))
    found = verify(model(), image())
    [check] = found.failures
    assert (check.name, check.specials) == ("pool", False)
    assert "NaN" in found.summary()


def test_a_nan_where_it_belongs_passes() -> None:
    x = image()
    x[1, 0, 5, 5] = np.nan
    x[0, 2, 3, 3] = np.inf
    found = verify(model(), x)
    assert found.passed, str(found)
    assert np.isnan(api.run(model(), x)[1]).all()


def test_a_shape_that_broadcasts_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil_trace(monkeypatch, "pool", lambda value: value[:1])
    assert [check.name for check in verify(model(), image()).failures] == ["pool"]


def test_other_bits_in_the_second_run_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def spoil(y: Array, kwargs: Any) -> Array:
        calls.append(1)
        return np.nextafter(y, np.float32(9)) if len(calls) == 2 else y

    spoil_run(monkeypatch, spoil)
    found = verify(model(), image())
    assert (found.repeatable, found.threads_agree, found.passed) == (False, True, False)
    assert "run to run: NO" in str(found)


def test_other_bits_from_one_thread_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil_run(monkeypatch, lambda y, kwargs: np.nextafter(y, 9) if kwargs["threads"] == 1 else y)
    found = verify(model(), image())
    assert (found.repeatable, found.threads_agree, found.passed) == (True, False, False)


def test_layers_out_of_order_are_met(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = cpu.trace

    def backwards(*args: Any, **kwargs: Any) -> Iterator[tuple[str, Array]]:
        yield from list(honest(*args, **kwargs))[::-1]

    expected = verify(model(), image())
    monkeypatch.setattr(cpu, "trace", backwards)
    assert verify(model(), image()) == expected


def test_several_outputs() -> None:
    found = verify(model(outputs=("fc", "pool", "x")), image())
    assert found.passed, str(found)
    assert [check.name for check in found.outputs] == ["fc", "pool", "x"]


def test_calls_back_for_every_layer() -> None:
    seen: list[str] = []
    spec = model()
    verify(spec, image(), on_layer=seen.append)
    assert seen == [node.name for node in spec.nodes]


def test_refuses_a_wrong_input() -> None:
    with pytest.raises(bslite.InputError, match="float64"):
        verify(model(), image().astype(np.float64))


def test_torch_sets_the_bound_of_the_outputs() -> None:
    torch = pytest.importorskip("torch")
    from bslite.cli.peer.model import TorchModel

    spec = model()
    found = verify(spec, torch.from_numpy(image()), module=TorchModel(spec))
    [output] = found.outputs
    assert found.passed
    assert output.torch_error is not None
    assert 0 < output.torch_error < 1e-5
    assert output.bound == pytest.approx(4 * output.torch_error, abs=1e-7)
    assert all(check.torch_error is None for check in found.layers)


def test_relative_error() -> None:
    ones = np.ones(4)
    assert relative_error(ones, ones) == 0
    assert relative_error(2 * ones, ones) == pytest.approx(1)
    assert relative_error(0.5 * ones, 0 * ones) == pytest.approx(1)  # absolute: nothing to divide by
    assert relative_error(ones[:1], ones) == np.inf
    assert relative_error(np.array([np.nan, 1.0]), np.array([np.nan, 1.0])) == 0


@pytest.mark.parametrize("moves", [1, 2, 3])
def test_layers_that_passes_move_are_compared_with_their_own(moves: int) -> None:
    """A ReLU behind moves goes into the convolution's store: what the moves make is then another value."""
    g = Graph("moved")
    x = g.input("x", (2, 3, 6, 5))
    y = g("conv2d", "conv", x, weight=noise(8, 3, 3, 3), padding=1)
    given = [
        ("permute", {"order": (0, 2, 3, 1)}),
        *(("reshape", {"shape": s}) for s in ((2, 30, 8), (60, 8))),
    ]
    for i, (op, attrs) in enumerate(given[:moves]):
        y = g(op, f"move{i}", y, **attrs)
    g("linear", "fc", g("relu", "relu", y), weight=noise(4, 8))
    spec = g.build("fc")
    found = verify(spec, noise(2, 3, 6, 5, seed=1))
    assert found.passed, found
    assert {"relu", "fc"} <= {layer.name for layer in found.layers} <= {n.name for n in spec.nodes}
    assert "relu/applied" in {n.name for n in bslite.passes.simplify(spec).nodes}
