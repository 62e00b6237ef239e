"""`bslite.compile`: names, sizes, memory, closing; the same bits as `bslite.run`."""

import gc
import re
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.noise import noise
from support.onnx_models import helper, image_net, model, value

import bslite
from bslite import EngineError, InputError, SpecError, UnsupportedError


def net() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten()).eval()


class Named(torch.nn.Module):
    """Takes an optional argument; returns a dict with a list in it."""

    def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> dict[str, Any]:
        y = torch.relu(x)
        return {"last": y, "all": [y, y + 1 if scale is None else y * scale]}


def two_inputs() -> Any:
    nodes = [helper.make_node("Add", ["left", "right"], ["s"]), helper.make_node("Relu", ["s"], ["positive"])]
    inputs = [value("left", ["n", 4]), value("right", ["n", 4])]
    return model(nodes, inputs, ["positive", "s"])


def test_a_spec_gives_the_bits_of_run_under_the_names_of_its_outputs() -> None:
    spec, x = bslite.from_onnx(image_net()), noise(2, 3, 8, 8)
    m = bslite.compile(spec)
    made = m(x)
    assert list(made) == [o.name for o in m.outputs] == list(spec.labels)
    assert np.array_equal(made[0], bslite.run(spec, x))


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_an_onnx_model_is_called_in_all_ways(device: str) -> None:
    m, a, b = bslite.compile(two_inputs(), device=device), noise(3, 4), noise(3, 4, seed=1)
    want = np.maximum(a + b, 0)
    calls = [m(a, b), m([a, b]), m(a, right=b), m(left=a, right=b), m({"left": a, "right": b})]
    for made in calls:
        assert list(made) == ["positive", "s"]
        for found in (made["positive"], made[0], made.positive, made.tuple()[0]):
            assert np.array_equal(found, want)
    assert isinstance(m(torch.from_numpy(a), torch.from_numpy(b)).positive, torch.Tensor)


def test_ports_say_what_the_file_says() -> None:
    m = bslite.compile(two_inputs())
    assert [str(p) for p in m.inputs] == ["left: float32[n, 4]", "right: float32[n, 4]"]
    spec = bslite.from_torch(net(), torch.zeros(2, 3, 5, 5))
    assert [str(p) for p in bslite.compile(spec).outputs] == ["output: float32[N, 72]"]
    assert "two" not in repr(m)
    assert "left: float32[n, 4]" in repr(m)


def test_a_module_is_traced_at_its_first_call_and_follows_its_weights() -> None:
    module, x = net(), torch.rand(2, 3, 5, 5)
    m = bslite.compile(module)
    with torch.no_grad():
        torch.testing.assert_close(m(x)["output"], module(x))
        module[0].weight.mul_(2)
        torch.testing.assert_close(m(x).output, module(x))
    assert isinstance(m(x.numpy())[0], np.ndarray)


def test_a_result_of_dicts_and_lists_is_named_by_keys_and_places() -> None:
    m, x = bslite.compile(Named().eval()), torch.rand(2, 3) - 0.5
    assert [p.name for p in m.inputs] == ["x", "scale"]
    made = m(x, scale=x)
    assert list(made) == ["last", "all.0", "all.1"]
    torch.testing.assert_close(made["all.1"], torch.relu(x) * x)
    torch.testing.assert_close(m(x=x)["all.1"], torch.relu(x) + 1)


def test_a_file_of_either_kind(tmp_path: Path) -> None:
    import onnx

    x, spec = noise(1, 3, 8, 8), bslite.from_onnx(image_net())
    onnx.save(image_net(), tmp_path / "m.onnx")
    spec.save(tmp_path / "m.safetensors")
    for file in ("m.onnx", "m.safetensors"):
        made = bslite.compile(tmp_path / file)(x)
        assert list(made) == list(spec.labels)
        assert np.array_equal(made[0], bslite.run(spec, x))
    assert np.array_equal(bslite.compile((tmp_path / "m.onnx").read_bytes())(x)[0], bslite.run(spec, x))


def test_closing_lets_go_of_the_memory_and_leaves_the_spec_alone() -> None:
    spec, x = bslite.from_onnx(image_net()), noise(1, 3, 8, 8)
    bslite.run(spec, x)
    kept = spec.__dict__["_cpu_engine"]
    with bslite.compile(spec) as m:
        assert m.memory == {"weights": 0, "values": 0, "plans": 0}
        m(x)
        assert m.memory["weights"] > 0
        assert m.memory["values"] > 0
        assert m.memory["plans"] > 0
        engine = weakref.ref(m._open().model.__dict__["_cpu_engine"])
    gc.collect()
    assert engine() is None
    assert spec.__dict__["_cpu_engine"] is kept
    with pytest.raises(EngineError, match="is closed"):
        m(x)
    assert repr(m) == f"<CompiledModel {spec.name!r}: closed>"


def test_what_the_parts_of_a_module_share_counts_once() -> None:
    m = bslite.compile(torch.nn.Linear(64, 64).eval())
    m(noise(5, 64))
    alone = m.memory["weights"]
    m(noise(3, 7, 64))  # another rank is another model, of the same packed weights
    assert m.memory["weights"] == alone > 0


def test_releasing_a_spec_makes_the_next_run_start_anew() -> None:
    spec, x = bslite.from_onnx(image_net()), noise(1, 3, 8, 8)
    first = bslite.run(spec, x)
    bslite.api.release(spec)
    assert bslite.api.memory(spec) == {"weights": 0, "values": 0, "plans": 0}
    assert np.array_equal(bslite.run(spec, x), first)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, a: m(a), "takes 2 inputs, left, right; right is missing"),
        (lambda m, a: m(a, a, a), "takes 2 inputs, left, right; got 3"),
        (lambda m, a: m(a, left=a), "left is given twice"),
        (lambda m, a: m(a, up=a), "there is no input up"),
        (lambda m, a: m(a, [1, 2]), "input 'right' is a list; expected a numpy array or a torch tensor"),
        (lambda m, a: m(a, a.astype(np.float64)), "input 'right' is float64, expected float32"),
    ],
)
def test_wrong_arguments_are_named(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call(bslite.compile(two_inputs()), noise(3, 4))


class Takes(torch.nn.Module):  # type: ignore[misc]
    """A forward with arguments of all kinds."""

    def forward(self, x: Any, y: Any = None, *more: Any, scale: Any) -> Any:
        return sum([x * scale, *([] if y is None else [y]), *more])


@pytest.mark.parametrize(
    ("args", "named", "message"),
    [
        (2, (), "missing a required argument: 'scale'"),
        (0, ("scale",), "missing a required argument: 'x'"),
        (1, ("scale", "x"), "multiple values for argument 'x'"),
        (1, ("scale", "z"), "unexpected keyword argument 'z'"),
        (1, ("scale",), ""),
        (4, ("scale",), ""),
        (1, ("y", "scale"), ""),
    ],
)
def test_arguments_of_a_module_are_those_of_its_forward(args: int, named: Any, message: str) -> None:
    net, x = Takes().eval(), torch.rand(2, 3)
    model, kwargs = bslite.compile(net), dict.fromkeys(named, x)
    for _ in range(2):
        if message:
            with pytest.raises(InputError, match=message):
                model(*[x] * args, **kwargs)
        else:
            assert torch.allclose(model(*[x] * args, **kwargs)[0], net(*[x] * args, **kwargs))


def test_what_cannot_be_compiled_says_why() -> None:
    with pytest.raises(InputError, match="takes a ModelSpec, the path of a model file"):
        bslite.compile(3)
    with pytest.raises(OSError, match="cannot read"):
        bslite.compile("missing.onnx")
    with pytest.raises(EngineError, match="device 'tpu'"):
        bslite.compile(two_inputs(), device="tpu")
    with pytest.raises(EngineError, match="precision 'int4'"):
        bslite.compile(two_inputs(), precision="int4")
    with pytest.raises(SpecError, match="training mode"):
        bslite.compile(net().train())
    with pytest.raises(UnsupportedError, match="runs where its parameters are"):
        bslite.compile(net(), device="cuda")
    with pytest.raises(InputError, match="'scaling'"):
        bslite.compile(Named().eval())(torch.rand(2, 3), scaling=1)
    with pytest.raises(AttributeError, match="there is no output 'z'; there are positive, s"):
        _ = bslite.compile(two_inputs())(noise(1, 4), noise(1, 4)).z


def test_run_and_verify_take_a_compiled_module() -> None:
    module = net()
    m, x = bslite.compile(module, threads=1), torch.from_numpy(noise(2, 3, 6, 6))
    assert torch.equal(bslite.run(m, x), m(x)[0])
    assert np.array_equal(bslite.run(m, {"input": x.numpy()}), m(x)[0].numpy())
    for options in ({"backend": "reference"}, {"threads": 2}, {"layerwise": True}):
        with pytest.raises(InputError, match="'Sequential' is a compiled torch module, which runs as it was"):
            bslite.run(m, x, **options)
    for given in (m, bslite.optimize(module, tune=False)):
        found = bslite.verify(given, x)
        assert found.passed
        assert [c.op for c in found.layers] == ["relu", "flatten"]  # the convolution is never stored
        assert found.outputs[0].torch_error is not None
    named = bslite.compile(Named().eval())
    assert len(bslite.run(named, [x, x])) == 3
    assert len(bslite.verify(named, {"x": x, "scale": x}).outputs) == 2  # "last" is the first of "all"
    with pytest.raises(EngineError, match="where its parameters are"):
        bslite.verify(m, x, backend="cuda")


def test_verify_says_what_it_cannot_compare() -> None:
    class Gamma(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.lgamma(x)

    fast = bslite.optimize(Gamma().eval(), tune=False, fallback="silent")
    with pytest.raises(InputError, match=r"runs as one model; 'Gamma' it does not.*bslite\.bisect"):
        bslite.verify(fast, torch.ones(2, 8))


def test_run_and_verify_keep_what_a_model_was_compiled_for(monkeypatch: pytest.MonkeyPatch) -> None:
    spec, x = bslite.from_onnx(image_net()), noise(2, 3, 8, 8)
    m = bslite.compile(spec, device="reference64", threads=1)
    assert bslite.run(m, x).dtype == np.float64
    assert bslite.run(m, x, backend="cpu").dtype == np.float32
    with pytest.raises(EngineError, match="'reference64' is not one of"):
        bslite.verify(m, x)
    from bslite.engines import cpu

    asked: list[Any] = []
    run = cpu.run

    def counted(*args: Any, **options: Any) -> Any:
        asked.append(options["threads"])
        return run(*args, **options)

    monkeypatch.setattr(cpu, "run", counted)
    bslite.run(bslite.compile(spec, threads=1), x)
    assert asked == [1]


def test_sequences_and_maps_are_held_against_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Softmax", ["y"], ["p"]),
        helper.make_node("SequenceConstruct", ["p", "y"], ["s"]),
    ]
    m = bslite.compile(model(nodes, [value("x", [8, 64])], ["s"], {"w": noise(64, 256)}))
    found = bslite.verify(m, noise(8, 64, seed=1))
    assert found.passed, str(found)
    assert [c.name for c in found.outputs] == ["s[0]", "s[1]"]
    assert all(c.error > 0 for c in found.outputs)
    from bslite.verification.checks import check_any

    right = {"a": [np.float32(1), "text"], "b": np.ones(2, np.float32)}
    wrong: list[Any] = [{**right, "b": np.zeros(2, np.float32)}, {"a": right["a"]}]
    wrong += [{**right, "a": [np.float32(1), "other"]}, {**right, "a": [np.float32(2), "text"]}]
    assert all(c.passed for c in check_any("s", right, right, right, None))
    for made in wrong:
        assert not all(c.passed for c in check_any("s", made, right, right, None))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda x: x.bfloat16(), "input 'x' is torch.bfloat16, expected torch.float32"),
        (lambda x: x.to_sparse(), "input 'x' is a torch.sparse_coo tensor; expected a dense one"),
        (lambda x: x.to("meta"), "input 'x' is on meta; expected it on the host"),
    ],
)
def test_tensors_without_an_array_are_refused_in_pieces(make: Any, text: str) -> None:
    m = bslite.compile(model([helper.make_node("Unique", ["x"], ["y"])], [value("x", ["n", 4])], ["y"]))
    x = make(torch.ones(2, 4))
    for call in (m, lambda x: bslite.run(m, x)):
        with pytest.raises(InputError, match=re.escape(text)):
            call(x)
    assert bslite.run(m, torch.ones(2, 4, requires_grad=True)).tolist() == [1.0]


@pytest.mark.parametrize("device", ["reference", "reference64"])
def test_a_model_compiled_for_a_reference_is_explained_and_verified_on_the_cpu_if_asked(device: str) -> None:
    compiled, x = bslite.compile(bslite.from_onnx(image_net()), device=device), noise(2, 3, 8, 8)
    for look in (bslite.explain, lambda *a, **k: bslite.verify(a[0], x, **k)):
        with pytest.raises(EngineError, match="of what is compiled for another device, say which"):
            look(compiled)
    assert bslite.verify(compiled, x, backend="cpu").passed
    assert bslite.explain(compiled, runs=1, backend="cpu").layers
