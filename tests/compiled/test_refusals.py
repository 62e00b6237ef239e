"""What is told at once: files and arguments that `compile`, `warmup`, `verify` and others cannot take."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.model_files import small_model
from support.noise import noise
from support.onnx_models import FLOAT, helper, model, onnx, value

import bslite
from bslite import EngineError, FileError, InputError, WeightsError

SPEC = small_model()
X = noise(*SPEC.inputs[0].example)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_is_no_model(tmp_path: Path) -> None:
    """Which would be waited for, for ever."""
    os.mkfifo(tmp_path / "pipe")
    for read in (bslite.compile, bslite.from_onnx, bslite.load):
        with pytest.raises(FileError, match="not a regular file"):
            read(tmp_path / "pipe")


@pytest.mark.parametrize("name", ["noext", "M.SAFETENSORS", "model.onnx"])
def test_a_saved_file_may_have_any_name(tmp_path: Path, name: str) -> None:
    bslite.save(SPEC, tmp_path / name)
    made = bslite.compile(tmp_path / name)(X).tuple()
    for got, want in zip(made, bslite.run(SPEC, X), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_damaged_file_is_told_by_what_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "m.safetensors").write_bytes(b"")
    with pytest.raises(FileError, match="safetensors"):
        bslite.compile(tmp_path / "m.safetensors")
    with pytest.raises(FileError) as told:
        bslite.compile(tmp_path / "m.safetensors")
    assert "ONNX" not in str(told.value)


def test_data_that_is_not_there_is_missed_at_once(tmp_path: Path) -> None:
    stored = onnx.numpy_helper.from_array(noise(4), "w")
    stored.data_location = onnx.TensorProto.EXTERNAL
    stored.ClearField("raw_data")
    stored.external_data.add(key="location", value="gone.bin")
    add = helper.make_node("Add", ["x", "w"], ["y"])
    proto = model([add], [value("x", ["n", 4])], [value("y", ["n", 4])])
    proto.graph.initializer.append(stored)
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(FileError, match=r"initialiser 'w': its external data 'gone\.bin' is not there"):
        bslite.compile(tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("constants", "words"),
    [
        ({"z": noise(1)}, r"the constant for input 'z' is \[1\], expected \[n, 4\]"),
        ({"z": noise(2, 5)}, r"is \[2, 5\], expected \[n, 4\]"),
        ({"z": noise(2, 4).astype("f8")}, "is float64, expected float32"),
        ({"z": [1.0]}, "is a list; expected a numpy array"),
        (3, "constants: a int, expected"),
    ],
)
def test_constants_are_what_the_file_declares(constants: Any, words: str) -> None:
    add = helper.make_node("Add", ["x", "z"], ["y"])
    inputs = [value(name, ["n", 4], FLOAT) for name in "xz"]
    with pytest.raises(InputError, match=words):
        bslite.from_onnx(model([add], inputs, [value("y", ["n", 4])]), constants=constants)


CALLS: dict[str, tuple[Callable[[], Any], type[Exception]]] = {
    "x is given twice": (lambda: bslite.compile(SPEC)({"x": X}, x=X), InputError),
    r"warmup\(\) takes a ModelSpec, got CompiledModel": (
        lambda: bslite.warmup(bslite.compile(SPEC)),
        InputError,
    ),
    r"warmup\(\): shapes is \(2, 4\)": (lambda: bslite.warmup(SPEC, (2, 4)), InputError),
    r"warmup\(\): shapes is \[\('N', 4\)\]": (lambda: bslite.warmup(SPEC, [("N", 4)]), InputError),
    "threads must be a positive integer": (lambda: bslite.warmup(SPEC, threads=0), EngineError),
    r"gradient\(\) takes a ModelSpec, got str": (lambda: bslite.gradient("a"), InputError),
    r"gradient\(\): shapes is 3": (lambda: bslite.gradient(SPEC, shapes=3), InputError),
    "is a MaskedArray": (lambda: bslite.run(SPEC, np.ma.array(X, mask=X > 0)), InputError),
    "module is a str, expected a torch module": (lambda: bslite.verify(SPEC, X, module="q"), InputError),
    r"the module gives shapes \[\]": (lambda: bslite.verify(SPEC, X, module=lambda x: []), InputError),
    r"the module gives shapes \[\[": (lambda: bslite.verify(SPEC, X, module=lambda x: [x] * 4), InputError),
    "there is no output 'zz'; there are": (lambda: bslite.compile(SPEC)(X)["zz"], KeyError),
    "there is no output 7; there are": (lambda: bslite.compile(SPEC)(X)[7], IndexError),
    "weight_ih_l0: got float64, expected float32": (
        lambda: bslite.from_state_dict(
            "lstm", {k: np.ones((8, 2)) for k in ("weight_ih_l0", "weight_hh_l0")}
        ),
        WeightsError,
    ),
    "random values of shape .* take": (lambda: bslite.explain(SPEC, (10**9, *X.shape[1:])), EngineError),
}


@pytest.mark.parametrize("words", CALLS)
def test_what_is_wrong_is_said(words: str) -> None:
    call, kind = CALLS[words]
    with pytest.raises(kind, match=words):
        call()
