"""How exactly products are computed: the words, where they are taken, and what they promise."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from support.check import assert_three_way, rel_l2
from support.dots import dots
from support.graphs import network, one_op
from support.networks import networks
from support.noise import noise
from support.tiles import split_layers, tiles

import bslite
from bslite import reference
from bslite.engines.cpu import engine
from bslite.engines.cpu.engine import prepare
from bslite.errors import EngineError, InputError
from bslite.frontends.weights.architectures.random_weights import random_state_dict
from bslite.frontends.weights.state_dict import from_state_dict

__all__ = ["dots", "tiles"]
X = noise(40, 96)
SPEC = one_op("linear", X, weight=noise(64, 96, seed=1))
WORDS = [p.value for p in bslite.Precision]


def layer() -> Any:
    return one_op("linear", ("N", 96), weight=noise(64, 96, seed=1))


def module() -> torch.nn.Module:
    made = torch.nn.Sequential(torch.nn.Linear(96, 64), torch.nn.ReLU())
    with torch.no_grad():
        made[0].weight.copy_(torch.from_numpy(noise(64, 96, seed=1)))
        made[0].bias.zero_()
    return made.eval()


class Sequence(torch.nn.Module):
    """A linear layer in front of a recurrent one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.lstm = torch.nn.Linear(64, 64), torch.nn.LSTM(64, 32, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(self.linear(x))[0]


def test_all_words_are_one_arithmetic_where_there_is_no_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    """They say the least accuracy; float32 multiply-adds have it."""
    here = dataclasses.replace(engine.detect(2), tile_cycles=0.0, dot_cycles=0.0)
    monkeypatch.setattr(engine, "detect", lambda threads: dataclasses.replace(here, threads=threads))
    spec = layer()
    want = bslite.run(spec, X).tobytes()
    for word in WORDS:
        assert bslite.run(spec, X, precision=word).tobytes() == want


@pytest.mark.parametrize(
    "call",
    [
        lambda: bslite.run(SPEC, X, precision="float16"),
        lambda: bslite.compile(SPEC, precision="float16"),
        lambda: bslite.optimize(module(), precision="float16"),
        lambda: bslite.precision("float16").__enter__(),
        lambda: bslite.verify(SPEC, X, precision="float16"),
        lambda: bslite.explain(SPEC, X, precision="float16"),
        lambda: torch.compile(module(), backend="bslite", options={"precision": "float16"})(
            torch.zeros(1, 96)
        ),
    ],
)
def test_another_word_is_an_error(call: Any) -> None:
    words = "precision 'float16' is not one of 'float32', 'ieee', 'bfloat16_3x', 'bfloat16'"
    with pytest.raises((EngineError, torch._dynamo.exc.BackendCompilerFailed), match=words):
        call()


@pytest.mark.usefixtures("tiles")
def test_every_call_takes_it() -> None:
    """`run`, `compile`, `optimize`, `torch.compile`, `Session` and the context: the same bits by each."""
    spec, x = layer(), torch.from_numpy(X)
    want = {word: bslite.run(spec, X, precision=word).tobytes() for word in WORDS}
    assert len(set(want.values())) == len(WORDS)
    for word in WORDS:
        assert bslite.run(spec, X, precision=word).tobytes() == want[word]  # by a call that is prepared
        with bslite.precision(word):
            assert bslite.run(spec, X).tobytes() == want[word]
            assert bslite.run(spec, X, precision="ieee").tobytes() == want["ieee"]
        for how in ({}, {"streams": 2}):
            with bslite.compile(spec, precision=word, **how) as model:
                assert model(X)[0].tobytes() == want[word]
                assert model.submit(X).result()[0].tobytes() == want[word]
                assert next(iter(model.map([X])))[0].tobytes() == want[word]
        relu = torch.relu(torch.frombuffer(bytearray(want[word]), dtype=torch.float32).reshape(40, 64))
        with torch.no_grad():
            assert torch.equal(bslite.optimize(module(), tune=False, precision=word)(x), relu)
            torch._dynamo.reset()
            compiled = torch.compile(module(), backend="bslite", options={"precision": word, "tune": False})
            assert torch.equal(compiled(x), relu)
    assert bslite.run(spec, X).tobytes() == want["float32"]


@pytest.mark.usefixtures("tiles")
def test_what_is_made_keeps_its_precision() -> None:
    """By the context in which it is made, and where it is unwrapped."""
    spec = layer()
    want = {word: bslite.run(spec, X, precision=word).tobytes() for word in WORDS}
    for word in WORDS:
        with bslite.precision(word):
            model, wrapped = bslite.compile(spec), bslite.optimize(module(), tune=False)
        assert model(X)[0].tobytes() == bslite.run(model, X).tobytes() == want[word]
        assert bslite.run(model, X, precision="ieee").tobytes() == want["ieee"]
        assert bslite.report(wrapped).precision == word
    assert not bslite.verify(bslite.compile(spec, precision="bfloat16"), X).passed
    assert "bfloat16" not in str(bslite.explain(bslite.compile(spec, precision="ieee"), X))
    with pytest.raises(InputError, match="no other backend, threads or precision"):
        bslite.run(bslite.compile(module()), torch.from_numpy(X), precision="ieee")


@pytest.mark.parametrize("unit", ["tiles", "dots"])
def test_a_stream_keeps_its_precision(unit: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(unit)
    spec, data = bslite.from_torch(Sequence().eval(), (torch.zeros(2, 3, 64),)), noise(2, 3, 64)
    for word in ("float32", "ieee", "bfloat16"):
        made = bslite.Session(spec, batch=2, precision=word).run(data)
        assert made.tobytes() == bslite.run(spec, data, precision=word).tobytes()


@pytest.mark.usefixtures("tiles")
def test_a_stream_goes_on_from_a_step_that_is_done_again() -> None:
    """Its state is not fed twice."""
    spec, data = bslite.from_torch(Sequence().eval(), (torch.zeros(2, 6, 64),)), noise(2, 6, 64)
    data[1, 2, 5] = 1e-35
    sessions = [bslite.Session(spec, batch=2, precision=word) for word in ("float32", "ieee")]
    made, ieee = ([session.step(x).copy() for x in data.swapaxes(0, 1)] for session in sessions)
    exact = reference.run(spec, [data], np.float64)[0].swapaxes(0, 1)
    for one, other, want in zip(made, ieee, exact, strict=True):
        assert_three_way(one, other, want, 1.5, least=1e-7)
    assert made[5].tobytes() != ieee[5].tobytes()


@pytest.mark.usefixtures("tiles")
def test_training_keeps_its_precision() -> None:
    """Forwards and backwards, on threads of torch's."""
    x = torch.from_numpy(X)
    grads = {}
    for word in ("float32", "ieee"):
        torch.manual_seed(0)
        made = bslite.optimize(module().train(), training=True, tune=False, precision=word)
        made(x).square().sum().backward()
        grads[word] = made[0].weight.grad.numpy()
    exact = module().double()
    exact(x.double()).square().sum().backward()
    want = exact[0].weight.grad.numpy()
    assert_three_way(grads["float32"], grads["ieee"], want, 1.5, least=1e-7)


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("name", networks(["resnet18", "mobilenet_v2", "squeezenet1_1", "densenet121"]))
def test_networks(name: str) -> None:
    """Depth-first and layer by layer, alone and in a batch, on one thread and more: the same bits, and no
    layer's arithmetic makes the answer less exact.
    """
    spec = network(name, size=64)
    x = noise(8, 3, 64, 64)
    exact = reference.run(spec, [x], np.float64)[0]
    made, ieee = (bslite.run(spec, x, threads=1, precision=word) for word in ("float32", "ieee"))
    assert_three_way(made, reference.run(spec, [x], np.float32)[0], exact, 1.5)
    assert made.tobytes() != ieee.tobytes()
    for how in ({"threads": 2}, {"threads": 8}, {"layerwise": True}):
        assert bslite.run(spec, x, **how).tobytes() == made.tobytes(), how
    for image, want in zip(x, made, strict=True):
        for threads in (1, 2):
            assert bslite.run(spec, image[None], threads=threads).tobytes() == want.tobytes()
    plan = prepare(spec, [x], 2, False).plan
    assert any(step.plans for step in plan.steps)
    assert len(split_layers(plan)) > 40
    assert rel_l2(bslite.run(spec, x, precision="bfloat16"), exact) < 0.5


@pytest.mark.usefixtures("tiles")
def test_a_transformer() -> None:
    """Attention between linear layers: the same bits on any threads, alone and in a batch."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 96, batch_first=True, norm_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    spec, x = bslite.from_torch(encoder, (torch.zeros(3, 70, 64),)), noise(3, 70, 64)
    made, exact = bslite.run(spec, x, threads=1), reference.run(spec, [x], np.float64)[0]
    assert_three_way(made, reference.run(spec, [x], np.float32)[0], exact, 1.5)
    plan = prepare(spec, [x], 2, False).plan
    assert [s.record.arithmetic for s in plan.steps if s.kernel == "split_attention"] == [
        "6 products of bfloat16 for each of float32"
    ] * 2
    assert len(split_layers(plan)) == 12  # an activation counts with its layer
    for how in ({"threads": 2}, {"threads": 8}, {"layerwise": True}):
        assert bslite.run(spec, x, **how).tobytes() == made.tobytes(), how
    for image, want in zip(x, made, strict=True):
        assert bslite.run(spec, image[None]).tobytes() == want.tobytes()


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize(("batch", "size"), [(8, 64), (1, 128)])
def test_a_flag_within_stacks_is_seen(batch: int, size: int) -> None:
    """A number without exact parts in the middle of a model: in a stack of images, or of bands of one."""
    params = random_state_dict("mobilenet_v2", 0, 10)
    bias = params["features.2.conv.1.1.bias"]
    bias[:] = 1e-35  # with no weight, this is what the next layer reads
    params["features.2.conv.1.1.weight"] = np.zeros_like(bias)
    spec = from_state_dict("mobilenet_v2", params, image_size=size)
    x = noise(batch, 3, size, size)
    plan = prepare(spec, [x], 2, False).plan
    assert any("features.2.conv.1.1" in str(step.layers) for step in plan.steps if step.plans)
    made, ieee = (bslite.run(spec, x, precision=word) for word in ("float32", "ieee"))
    assert made.tobytes() == ieee.tobytes()


@pytest.mark.usefixtures("tiles")
def test_verification_and_explanation_say_it() -> None:
    spec = network("squeezenet1_1", size=64)
    x = noise(1, 3, 64, 64)
    assert bslite.verify(spec, x, precision="float32").passed
    assert not bslite.verify(spec, x, precision="bfloat16").passed
    text = str(bslite.explain(spec, x))
    assert "6 products of bfloat16" in text
    assert "6 products of bfloat16" not in str(bslite.explain(spec, x, precision="ieee"))
    assert "done again" not in text
    x[0, 0, 3, 4] = 1e-35
    assert "each run is done again by float32 multiply-adds" in str(bslite.explain(spec, x))
    assert "done again" not in str(bslite.explain(spec, x, precision="ieee"))
    assert "precision: ieee" in str(bslite.report(bslite.optimize(module(), precision="ieee")))
