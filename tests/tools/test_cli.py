"""The command line, in process: what each command prints, and how it fails."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.graphs import network
from support.noise import noise
from support.onnx_models import image_net, one, onnx, tokens, value

pytest.importorskip("typer")
pytest.importorskip("PIL")

from rich.console import Console

from bslite import api
from bslite.cli import demo, info, inputs, progress, timing, top
from bslite.engines import cpu
from bslite.frontends.weights import architectures

SMALL = ("--arch", "squeezenet1_1", "--shape", "1,3,64,64")
COMMANDS = (
    "demo", "run", "verify", "bench", "stream", "explain", "explore", "tune", "info", "calibrate", "warmup",
)  # fmt: skip


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "small.safetensors"
    network("squeezenet1_1", 1000, 64).save(path)
    return path


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "SETTLE", 0.0)


@pytest.mark.parametrize("command", COMMANDS)
def test_help(call: Any, command: str) -> None:
    assert f"Usage: bslite {command}" in call(command, "--help")


def test_help_lists_the_commands(call: Any) -> None:
    out = call("--help")
    assert all(command in out for command in COMMANDS)


def test_run_a_file_on_the_sample(call: Any, saved: Path, tmp_path: Path) -> None:
    target = tmp_path / "scores.npy"
    out = call("run", str(saved), "-i", str(inputs.SAMPLE), "--batch", "2", "--save", str(target))
    assert "[2, 1000] float32" in out
    assert out.count(" %") == 10
    scores = np.load(target)
    assert scores.shape == (2, 1000)
    assert np.array_equal(scores[0], scores[1])
    best = int(scores[0].argmax())
    assert out.split("no. 1 ")[1].split()[::3][:2] == [str(best)] * 2, "class, share, %"


def test_four_images_fit_80_columns() -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(top.top_table({f"image {i}": noise(1, 1000)[0] for i in range(4)}))
    lines = console.export_text().splitlines()
    assert [line.count("%") for line in lines] == [0, 4, 4, 4, 4, 4]


def test_run_agrees_with_the_reference(call: Any, tmp_path: Path) -> None:
    answers = []
    for options in ((), ("--layerwise", "--threads", "1"), ("--backend", "reference")):
        target = tmp_path / "y.npy"
        call("run", *SMALL, *options, "--save", str(target))
        answers.append(np.load(target))
    np.testing.assert_allclose(answers[0], answers[2], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(answers[1], answers[2], rtol=1e-3, atol=1e-4)


def test_run_an_array(call: Any, saved: Path, tmp_path: Path) -> None:
    x = tmp_path / "x.npy"
    np.save(x, np.ones((1, 3, 70, 65), np.float32))
    call("run", str(saved), "--input", str(x))
    told = call("run", str(saved), "--input", str(x), "--batch", "2", code=2)
    assert "holds [1, 3, 70, 65], expected [2, 3," in told
    np.save(x, np.ones((1, 3, 70, 65)))
    assert "float64, expected float32" in call("run", str(saved), "--input", str(x), code=2)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("run", "--arch", "resnet49"), "did you mean resnet"),
        (("run", "missing.safetensors"), "missing.safetensors: no such file"),
        (("run",), "either a MODEL file or --arch"),
        (("run", "m.safetensors", "--arch", "resnet18"), "either a MODEL file or --arch"),
        (("verify", "m.safetensors", "--weights", "w.pth"), "--weights goes with --arch"),
        (("run", *SMALL, "--input", "missing.png"), "missing.png: not a readable image"),
        (("run", *SMALL, "--input", "missing.npy"), "missing.npy: not a readable .npy file"),
        (("run", *SMALL, "--input", __file__), "not a readable image"),
        (("run", "--arch", "squeezenet1_1", "--shape", "1,three"), "not a list of sizes"),
        (("verify", "--arch", "squeezenet1_1", "--shape", "1,4,64,64"), "axis 1 is 4, should be 3"),
        (("run", *SMALL, "--save", "/nowhere/at/all.npy"), "cannot write"),
        (("warmup", "--all", "--arch", "vgg16"), "--all takes no model"),
        (("dance",), "No such command"),
        (("run", *SMALL, "--seed", "-1"), "Invalid value for '--seed'"),
        (("run", "--arch", "squeezenet1_1", "--shape", "-1x3x64x64"), "each size is from 1 to"),
        (("run", "--arch", "squeezenet1_1", "--shape", f"{10**20}x3x64x64"), "each size is from 1 to"),
        (("explain", "--arch", "squeezenet1_1", "--shape", f"{10**9}x3x64x64"), "the machine has"),
        (("stream", "m.safetensors", "--shape", "1x4"), "--shape is for open sizes of ONNX files"),
    ],
)
def test_mistakes_are_told(call: Any, arguments: tuple[str, ...], expected: str) -> None:
    assert expected in call(*arguments, code=2)


def test_a_missing_package_is_told(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "typer", None)
    assert 'needs typer; install it with: pip install "bslite[cli]"' in call("info", code=2)


def test_verify_passes(call: Any, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    out = call("verify", *SMALL, "--no-torch", "--json", str(figures))
    assert "passed:" in out
    assert "max_pool2d" in out
    assert json.loads(figures.read_text())["passed"] is True
    assert "max_pool2d" not in call("verify", *SMALL, "--quiet")


def test_verify_fails_with_exit_code_1(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = cpu.trace
    monkeypatch.setattr(
        cpu, "trace", lambda *a, **k: ((name, value * np.float32(1.001)) for name, value in honest(*a, **k))
    )
    assert "FAILED" in call("verify", *SMALL, "--no-torch", code=1)


def test_bench(call: Any) -> None:
    out = call("bench", *SMALL, "--rounds", "1")
    assert "layer by layer" in out
    assert "1.00 x" in out


def test_warmup(call: Any, saved: Path) -> None:
    for arguments in (("warmup", str(saved), "--batch", "3"), ("warmup", *SMALL), ("warmup",)):
        assert "kernels compiled" in call(*arguments)


def test_warmup_leaves_nothing_to_compile(call: Any) -> None:
    from bslite.kernels.cpu.runtime.compile import compiled

    call("warmup", *SMALL)
    before = list(compiled)
    call("run", *SMALL)
    assert compiled == before


def test_info(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(info, "first_answer", lambda: (0.125, 2.5))
    out = call("info", "--timings")
    for expected in ("float32 lanes", "kernels on disk", "threads", "numba", "0.12 s", "2.50 s"):
        assert expected in out


@pytest.mark.processes
def test_timings_come_from_fresh_processes() -> None:
    imported, answered = info.first_answer(runs=1)
    assert 0 <= imported < answered < 60


@pytest.mark.parametrize("command", ["run", "verify", "bench", "explain", "warmup"])
def test_commands_take_an_onnx_file(call: Any, tmp_path: Path, command: str) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(image_net().SerializeToString())
    more = ("--no-torch",) if command == "verify" else ()
    call(command, path, "--batch", 2, *more)


def test_integer_inputs_are_indices(call: Any, tmp_path: Path) -> None:
    path = tmp_path / "tokens.ONNX"
    path.write_bytes(tokens().SerializeToString())
    assert "[3, 6, 8] float32" in call("run", path, "--batch", 3)


def test_shape_is_the_example_of_open_sizes(call: Any, tmp_path: Path) -> None:
    path = tmp_path / "open.onnx"
    path.write_bytes(one("Relu", "x", of=[value("x", ["n", "h"])]).SerializeToString())
    assert "[1, 64] float32" in call("run", path)
    assert "[2, 7] float32" in call("run", path, "--shape", "2,7")


def test_a_text_is_an_input_of_strings(call: Any, tmp_path: Path) -> None:
    path = tmp_path / "words.onnx"
    words = one(
        "StringNormalizer", "x", of=[value("x", ["n"], onnx.TensorProto.STRING)], case_change_action="UPPER"
    )
    path.write_bytes(words.SerializeToString())
    assert "HELLO" in call("run", path, "--input", "hello")


def test_what_is_no_input_is_told(call: Any, tmp_path: Path) -> None:
    path = tmp_path / "tokens.onnx"
    path.write_bytes(tokens().SerializeToString())
    assert "'hello' is neither a number nor a .npy file" in " ".join(
        call("run", path, "--input", "hello", code=2).split()
    )


def test_a_damaged_file_is_a_message(call: Any, tmp_path: Path) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(b"no model")
    assert "not an ONNX model" in call("run", path, code=2)


@pytest.mark.networks
def test_demo(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "ROUNDS", 1)
    out = call("demo")
    assert "resnet50" in out
    assert "sample.png" in out
    assert "passed:" in out
    assert "NumPy reference" in out
    assert out.count("no. ") == 5
    ranks = out.split("no. 1 ")[1].split("The weights are random")[0]
    assert ranks.count(" %") == 10, "five of each column"


@pytest.mark.networks
def test_demo_fails_with_exit_code_1(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "ROUNDS", 1)
    honest = api.run
    monkeypatch.setattr(
        api,
        "run",
        lambda *a, **k: honest(*a, **k) + np.float32(0 if k.get("backend") == "reference" else 0.01),
    )
    assert "FAILED" in call("demo", code=1)


def test_the_picture_is_cropped_and_normalised(tmp_path: Path) -> None:
    from PIL import Image

    pixels = np.zeros((80, 200, 3), np.uint8)
    pixels[:, 60:140] = (255, 0, 0)
    Image.fromarray(pixels).save(tmp_path / "red.png")
    x = inputs.load_image(tmp_path / "red.png", (32, 32))
    assert (x.shape, x.dtype) == ((1, 3, 32, 32), np.float32)
    np.testing.assert_allclose(x[0, 0], (1 - 0.485) / 0.229, rtol=1e-5)
    np.testing.assert_allclose(x[0, 1], (0 - 0.456) / 0.224, rtol=1e-5)


def test_the_sample_is_small_and_drawn_as_it_says() -> None:
    import runpy

    from PIL import Image

    assert inputs.SAMPLE.stat().st_size < 60_000
    drawn = runpy.run_path(str(inputs.SAMPLE.with_name("draw_sample.py")))["draw"]()
    with Image.open(inputs.SAMPLE) as shipped:
        apart = np.abs(np.asarray(shipped, int) - np.asarray(drawn, int))
    assert apart.max() <= 1


def test_compilation_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    from bslite.kernels.cpu.runtime.compile import on_ready

    before = list(on_ready)
    with progress.activity("Preparing"):
        for name, from_cache in (("a", False), ("b", True), ("c", False)):
            for hook in on_ready:
                hook(name, from_cache)
    assert on_ready == before
    assert "compiled 2 kernels" in capsys.readouterr().err


def test_rivals_take_turns() -> None:
    order: list[str] = []
    seconds = timing.interleaved(
        {name: lambda name=name: order.append(name) for name in "ab"}, rounds=2, per_turn=1
    )
    assert order == list("aabbaabb")
    assert {name: len(each) for name, each in seconds.items()} == {"a": 2, "b": 2}


@pytest.mark.parametrize("arch", ["squeezenet1_1", "googlenet", "densenet121", "mobilenet_v2"])
def test_the_torch_rival_computes_the_same(arch: str) -> None:
    torch = pytest.importorskip("torch")
    from bslite.cli.peer.model import TorchModel

    spec = network(arch, 1000)
    x = noise(1, 3, 64, 64)
    [got] = TorchModel(spec)(torch.from_numpy(x))
    expected = api.run(spec, x, backend="reference")
    assert np.linalg.norm(got.numpy() - expected) <= 1e-5 * np.linalg.norm(expected)


def test_hollow_models_fit_every_architecture() -> None:
    from bslite.cli.warmup import hollow

    smallest = min(architectures.NAMES, key=len)
    assert hollow(smallest).name == smallest


def test_numbers_beyond_a_dtype_are_refused(call: Any, tmp_path: Path) -> None:
    import onnx
    from support.onnx_models import helper, model, value

    for name, dtype, wrong in (
        ("x", onnx.TensorProto.UINT8, ("300", "-1")),
        ("b", onnx.TensorProto.BOOL, ("2",)),
    ):
        path = tmp_path / f"{name}.onnx"
        onnx.save(
            model([helper.make_node("Identity", [name], ["y"])], [value(name, ["n", 4], dtype)], ["y"]), path
        )
        for text in wrong:
            assert f"got {text}" in call("run", str(path), f"--input={text}", code=2)
    assert "[5, 4]" in call("run", str(path), "--input", "1", "--batch", "5")
