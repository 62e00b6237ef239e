"""`explain`, `run`, `verify` and the command line of models that run in several pieces."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.noise import noise
from support.onnx_models import helper, model, value

import bslite
from bslite.explanation import Explanation, Limits, PiecesExplanation
from bslite.frontends.onnx.read import Reader
from bslite.onnx.model import OnnxModel

LIMITS = Limits(1, 3e9, 1e11, {"l2": 1e11, "l3": 5e10, "memory": 1e10}, {"l2": 1 << 20, "l3": 1 << 25})
X = noise(3, 8)
STEPS = np.array(5, np.float32)


def cut() -> Any:
    """A product, a loop of a computed number of steps with a product in it, NonZero, a product again."""
    node = helper.make_node
    body = helper.make_graph(
        [node("MatMul", ["s", "w"], ["t"], name="inner"), node("Tanh", ["t"], ["s2"]),
         node("Identity", ["go"], ["go2"])],
        "body",
        [value("i", [], 7), value("go", [], 9), value("s", ["n", 8])],
        [value("go2", [], 9), value("s2", ["n", 8])],
    )  # fmt: skip
    nodes = [
        node("MatMul", ["x", "w"], ["a"], name="first"),
        node("Cast", ["steps"], ["count"], to=7),
        node("Loop", ["count", "", "a"], ["b"], body=body, name="loop"),
        node("NonZero", ["b"], ["where"], name="found"),
        node("MatMul", ["b", "w"], ["y"], name="last"),
    ]
    inputs = [value("x", ["n", 8]), value("steps", [])]
    return model(nodes, inputs, ["y", "where"], {"w": noise(8, 8) / 3})


@pytest.fixture(scope="module")
def made() -> Any:
    with bslite.compile(cut(), threads=1) as compiled:
        yield compiled


@pytest.fixture(scope="module")
def found(made: Any) -> PiecesExplanation:
    with (
        pytest.MonkeyPatch.context() as patch
    ):  # which pieces are worth it depends on how busy the machine is
        patch.setattr("bslite.explanation.pieces.LEAST_SHARE", 0.0)
        e = bslite.explain(made, {"x": (3, 8), "steps": STEPS}, runs=2, limits=LIMITS)
    assert isinstance(e, PiecesExplanation)
    return e


def test_pieces_are_explained(found: PiecesExplanation) -> None:
    kinds = [(r.how, r.calls, r.depth) for r in found.rows]
    assert ("engine", 1, 0) in kinds
    assert ("control flow", 1, 0) in kinds
    assert ("engine", 5, 1) in kinds  # the loop's body, step by step
    (host,) = [r for r in found.rows if r.how == "NumPy"]
    assert "'found' (NonZero)" in host.what
    assert host.reason
    assert all(r.floor is not None for r in found.rows if r.part is not None)
    assert sum(r.share for r in found.rows) == pytest.approx(1)
    loop = next(r for r in found.rows if r.how == "control flow")
    ((begin, end),) = loop.at
    inner = next(r for r in found.rows if r.depth == 1)
    assert all(begin <= start <= stop <= end for start, stop in inner.at)
    assert found.parts
    assert all(isinstance(part, Explanation) for part in found.parts)
    names = {n for part in found.parts for r in part.rows for n in r.nodes}
    assert {"first", "last"} <= names


def test_views_of_pieces(found: PiecesExplanation, tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    text = str(found)
    for expected in ("control flow", "'found' (NonZero)", "piece 1, input", "floor of what the engine"):
        assert expected in text
    data = json.loads(json.dumps(found.as_dict()))
    assert len(data["pieces"]) == len(found.rows)
    found.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {e["pid"] for e in events} == {1, *range(2, 2 + len(found.parts))}
    assert sum(e["ph"] == "X" and e["pid"] == 1 for e in events) == sum(r.calls for r in found.rows)
    found.save_html(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "Time per piece" in page
    assert page.count("<h2>Roofline</h2>") == len(found.parts)
    assert page.count("<!doctype html>") == 1


def test_run_and_verify_take_what_compile_takes(made: Any) -> None:
    y, where = bslite.run(made, {"steps": STEPS, "x": X})
    loaded = OnnxModel(cut())
    for again in (bslite.run(loaded, [X, STEPS]), made(X, STEPS).tuple()):
        assert np.array_equal(again[0], y)
        assert np.array_equal(again[1], where)
    exact, _ = bslite.run(made, [X, STEPS], backend="reference64")
    assert exact.dtype == np.float64
    np.testing.assert_allclose(y, exact, rtol=1e-4, atol=1e-5)
    checked = bslite.verify(made, [X, STEPS])
    assert checked.passed
    assert {c.name.partition(": ")[2] for c in checked.layers} >= {"first", "last"}
    assert len(checked.outputs) == 2


def test_verify_of_pieces_finds_a_wrong_one(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from bslite.engines import cpu

    honest = cpu.trace
    monkeypatch.setattr(
        cpu, "trace", lambda *a, **k: ((name, value * np.float32(1.001)) for name, value in honest(*a, **k))
    )
    assert not bslite.verify(made, [X, STEPS]).passed


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"x": X}, "'steps' is missing"),
        ({"x": X, "steps": STEPS, "z": X}, "no input 'z'"),
        ([X], "takes 2 arrays"),
        ([X.astype(np.float64), STEPS], "'x' is float64, expected float32"),
        ([X[:, :3], STEPS], "axis 1 is 3, should be 8"),
        (["text", STEPS], "input 'x' is a str"),
    ],
)
def test_bad_inputs_of_pieces(made: Any, given: Any, message: str) -> None:
    with pytest.raises(bslite.InputError, match=message):
        bslite.run(made, given)


def test_what_pieces_do_not_do(made: Any) -> None:
    with pytest.raises(bslite.EngineError, match="several pieces"):
        bslite.run(made, [X, STEPS], layerwise=True)
    with pytest.raises(bslite.EngineError, match="several pieces"):
        bslite.explain(made, [X, STEPS], backend="cuda")
    with pytest.raises(bslite.UnsupportedError, match=r"bslite\.compile"):
        bslite.from_onnx(cut())


def test_explain_of_compiled_models_of_all_kinds() -> None:
    torch = pytest.importorskip("torch")
    from support.graphs import one_op

    spec = one_op("relu", ("N", 8))
    compiled = bslite.compile(spec)
    assert bslite.explain(compiled, {"x0": (3, 8)}, runs=2, limits=LIMITS).shapes == ((3, 8),)
    module = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval()
    traced = bslite.from_torch(module, torch.ones(2, 8), dynamic_shapes="auto")
    assert bslite.explain(traced, (5, 8), runs=2, limits=LIMITS).shapes == ((5, 8),)
    made = bslite.compile(module)
    for given in ((2, 8), [(2, 8)], {"input": (2, 8)}, None):
        with pytest.raises(
            bslite.InputError, match=r"declares neither sizes nor dtypes: explain\(\) takes its inputs"
        ):
            bslite.explain(made, given)
    for given in (torch.ones(2, 8), {"input": noise(2, 8)}, None):
        assert "linear" in str(bslite.explain(made, given, runs=2, limits=LIMITS))
    with pytest.raises(bslite.InputError, match=r"what bslite\.compile makes"):
        bslite.explain(module)


def test_a_cut_model_with_options_is_cut_once(monkeypatch: pytest.MonkeyPatch) -> None:
    opened, converted = OnnxModel(cut()), list[Any]()
    convert = Reader.convert

    def counted(self: Reader, *given: Any) -> Any:
        converted.append(given)
        return convert(self, *given)

    monkeypatch.setattr(Reader, "convert", counted)
    first = bslite.run(opened, [X, STEPS], threads=1)
    assert converted
    converted.clear()
    again = bslite.run(opened, [X, STEPS], threads=1)
    assert not converted
    assert [y.tobytes() for y in first] == [y.tobytes() for y in again]


def test_a_whole_model_is_settled_once_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    opened, settled = OnnxModel(model([node], [value("x", ["n", 8])], ["y"], {"w": noise(8, 8)})), list[Any]()
    settle = OnnxModel.settle

    def counted(self: OnnxModel, given: Any) -> Any:
        settled.append(given)
        return settle(self, given)

    monkeypatch.setattr(OnnxModel, "settle", counted)
    bslite.run(opened, X, threads=1)
    assert len(settled) == 1
    assert bslite.verify(opened, X, threads=1).passed
    assert len(settled) == 2


def test_explain_of_a_model_traced_at_one_size() -> None:
    torch = pytest.importorskip("torch")

    class Halves(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.nn.functional.interpolate(torch.relu(x[..., ::2]), size=x.shape[-2:])

    from bslite.frontends.torch.model import TorchModel

    traced = bslite.from_torch(Halves().eval(), torch.ones(1, 2, 6, 6), dynamic_shapes="auto")
    assert isinstance(traced, TorchModel)
    for model_ in (traced, bslite.compile(traced)):
        assert bslite.explain(model_, (1, 2, 8, 10), runs=2, limits=LIMITS).shapes == ((1, 2, 8, 10),)
        assert bslite.explain(model_, runs=2, limits=LIMITS).shapes == ((1, 2, 6, 6),)
        assert bslite.verify(model_, noise(1, 2, 8, 10)).passed


def test_commands_take_models_in_pieces(call: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from bslite.explanation import api

    monkeypatch.setattr(api, "measured", lambda threads: LIMITS)
    path = tmp_path / "cut.onnx"
    path.write_bytes(cut().SerializeToString())
    np.save(tmp_path / "x.npy", X)
    given = ("--input", f"x={tmp_path / 'x.npy'}", "--input", "steps=5")
    assert "[3, 8] float32" in call("run", path, *given)
    assert "[2, 8] float32" in call("run", path, "--shape", "x=2x8")
    assert "(NonZero)" in call("explain", path, *given, "--runs", "2")
    assert "passed:" in call("verify", path, *given)
    assert "bslite" in call("bench", path, *given, "--rounds", "1")
    assert "(NonZero)" in call("info", path)
    assert "no input 'z'" in call("run", path, "--shape", "z=2,8", code=2)
    assert "say of which" in call("run", path, "--shape", "2,8", code=2)
    assert "twice for 'x'" in call("run", path, "--shape", "x=2,8", "--shape", "x=3,8", code=2)
    assert "No such file" in call("explain", tmp_path / "none.onnx", code=2)
