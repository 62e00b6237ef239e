"""ONNX models that are wrong, or made to harm: each is a bslite error that says what and where."""

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.noise import noise
from support.onnx_models import IMAGES as X
from support.onnx_models import helper, i64, image_net, model, one, onnx, value

from bslite import FileError, InputError, SpecError, UnsupportedError, from_onnx

node = helper.make_node


def broken_tensor(**fields: Any) -> Any:
    """A model that adds an initialiser with some fields of its proto replaced."""
    made = one("Add", "x", "w", w=noise(4))
    tensor = made.graph.initializer[0]
    for name, content in fields.items():
        tensor.ClearField(name)
        if name in ("dims", "float_data", "int32_data"):
            getattr(tensor, name).extend(content)
        else:
            setattr(tensor, name, content)
    return made


def external(location: str, **more: str) -> Any:
    made = broken_tensor(raw_data=b"")
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, content in {"location": location, **more}.items():
        tensor.external_data.add(key=key, value=content)
    return made


def recursive() -> Any:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    f = helper.make_function("own", "F", ["a"], ["b"], [node("F", ["a"], ["b"], domain="own")], opsets)
    return model([node("F", ["x"], ["y"], domain="own")], X, ["y"], functions=[f])


def explosive() -> Any:
    """Twenty functions, each calling the next one ten times."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    made = [helper.make_function("own", "F0", ["a"], ["b"], [node("Relu", ["a"], ["b"])], opsets)]
    for i in range(1, 20):
        names = ["a", *(f"t{j}" for j in range(9)), "b"]
        calls = [node(f"F{i - 1}", [p], [q], domain="own") for p, q in itertools.pairwise(names)]
        made.append(helper.make_function("own", f"F{i}", ["a"], ["b"], calls, opsets))
    return model([node("F19", ["x"], ["y"], domain="own")], X, ["y"], functions=made)


def twice_defined() -> Any:
    nodes = [node("Relu", ["x"], ["a"]), node("Sigmoid", ["x"], ["a"]), node("Neg", ["a"], ["y"])]
    return model(nodes, X, ["y"])


def cyclic() -> Any:
    return model([node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"])], X, ["b"])


def axis_of_softmax(change: Callable[[Any], Any]) -> Any:
    """A softmax of whose node's list of attributes ``change`` makes something else."""
    made = one("Softmax", "x", axis=1)
    change(made.graph.node[0].attribute)
    return made


def without_opset() -> Any:
    made = one("Relu", "x")
    del made.opset_import[:]
    return made


def two_initialisers() -> Any:
    made = one("Add", "x", "w", w=noise(4))
    made.graph.initializer.append(made.graph.initializer[0])
    return made


def as_numbers(numbers: list[float]) -> Any:
    """The initialiser's data as a list of numbers."""
    made = broken_tensor(float_data=numbers)
    made.graph.initializer[0].ClearField("raw_data")
    return made


HUGE, FLOAT = i64(1 << 20, 1 << 20), onnx.AttributeProto.FLOAT
SPLIT = model([node("Split", ["x", "s"], ["a", "b"], name="it")], X, ["a"], {"s": i64(1, 5)})
#: Error -> what is wrong -> the model, and what the message says.
HOSTILE: dict[type[Exception], dict[str, tuple[Any, str]]] = {
    SpecError: {
        "cycle": (cyclic(), "node 'a' reads 'b', which is neither an input nor made by an earlier"),
        "value made twice": (twice_defined(), "'a' is made twice"),
        "two inputs of one name": (one("Relu", "x", of=[*X, *X]), "two inputs are called 'x'"),
        "two initialisers of one name": (two_initialisers(), "two initialisers are called 'w'"),
        "an output that nothing makes": (
            model([node("Relu", ["x"], ["y"])], X, ["z"]), "its output 'z' is made by no node",
        ),
        "no opset": (without_opset(), "does not say which version"),
        "unknown attribute": (one("Relu", "x", alpha=1.0), "node 'it'.*no attribute 'alpha'"),
        "attribute of another kind": (one("Softmax", "x", axis=1.0), "of the wrong kind"),
        "attribute that lies": (
            axis_of_softmax(lambda its: setattr(its[0], "type", FLOAT)),
            "node 'it'.*attribute 'axis'.*wrong kind",
        ),
        "attribute twice": (
            axis_of_softmax(lambda its: its.append(its[0])), "node 'it'.*two attributes 'axis'",
        ),
        "attribute missing": (one("Concat", "x", "x"), "node 'it'.*needs the attribute 'axis'"),
        "too many inputs": (one("Relu", "x", "x"), "node 'it'.*has 2 inputs, expected 1 to 1"),
        "too few inputs": (one("Add", "x"), "node 'it'.*has 1 inputs, expected 2"),
        "input left out": (one("Add", "x", ""), "input 1 .* is left out"),
        "axis out of range": (one("Softmax", "x", axis=7), "node 'it'.*axis 7 is out of range"),
        "negative pads": (
            one("Conv", "x", "w", w=noise(2, 3, 3, 3), pads=[-1, 0, 0, 0]), "node 'it'.*negative",
        ),
        "kernel larger than the image": (one("Conv", "x", "w", w=noise(2, 3, 9, 9)), "node 'it'"),
        "channels that do not fit": (one("Conv", "x", "w", w=noise(2, 5, 1, 1)), "node 'it'.*3 channels"),
        "reshape that does not fit": (one("Reshape", "x", "s", s=i64(7, -1)), "node 'it'"),
        "reshape with two holes": (one("Reshape", "x", "s", s=i64(-1, -1)), "node 'it'"),
        "sizes that do not broadcast": (one("Add", "x", "w", w=noise(3)), "node 'it'.*do not broadcast"),
        "huge constant": (one("ConstantOfShape", "s", s=HUGE), "node 'it'.*too|more than"),
        "huge expand": (one("Expand", "w", "s", w=noise(1, 1), s=HUGE), "node 'it'"),
        "huge range": (
            one("Range", "a", "b", "c", a=np.int64(0), b=np.int64(1 << 50), c=np.int64(1)),
            "node 'it'.*more than",
        ),
        "range without a step": (one("Range", "a", "a", "a", a=np.int64(0)), "node 'it'.*step of zero"),
        "huge tile": (one("Tile", "x", "s", s=i64(1 << 20, 1 << 20, 1, 1)), "node 'it'.*too large"),
        "negative tile": (one("Tile", "x", "s", s=i64(1, 1, -1, 1)), "node 'it'"),
        "huge pad": (one("Pad", "x", "s", s=i64(0, 0, 1 << 40, 0, 0, 0, 0, 0)), "node 'it'.*too large"),
        "integers divided by zero": (one("Div", "a", "b", a=i64(1), b=i64(0)), "node 'it'.*division by zero"),
        "index out of range": (one("Gather", "x", "s", s=i64(9)), "node 'it'.*indices"),
        "split that does not fit": (SPLIT, "node 'it'.*splits axis 0"),
        "function that calls itself": (recursive(), "functions within functions"),
        "functions that explode": (explosive(), "more than 50000 nodes"),
        "huge input": (one("Relu", "x", of=[value("x", [1 << 40, 1 << 40])]), "input 'x'.*too large"),
        "negative input": (one("Relu", "x", of=[value("x", [2, -3])]), "input 'x'.*negative"),
        "input of many axes": (one("Relu", "x", of=[value("x", [1] * 99)]), "input 'x' has 99 dimensions"),
        "data too short": (broken_tensor(raw_data=b"abc"), "'w': 3 bytes of data do not fill"),
        "dims too large": (broken_tensor(dims=[1 << 30]), "'w': 16 bytes of data do not fill"),
        "dims negative": (broken_tensor(dims=[-4]), "'w' has the shape .* negative"),
        "dims beyond any memory": (broken_tensor(dims=[1 << 62, 1 << 62]), "'w' has the shape .* too large"),
        "numbers too few": (as_numbers([1.0, 2.0]), "2 numbers do not fill"),
        "unknown type": (broken_tensor(data_type=999), "'w' is of type 999"),
        "type of strings": (broken_tensor(data_type=8), "'w': 0 texts do not fill \\[4\\]"),
    },
    UnsupportedError: {
        "unknown operator": (one("Frobnicate", "x"), "1 x Frobnicate: no oper.*at it"),
        "future opset": (one("Relu", "x", opset=9999), "opset 9999"),
        "input of strings": (
            one("Identity", "x", of=[value("x", [2], onnx.TensorProto.STRING)]), "input 'x' is string",
        ),
    },
    FileError: {"external data of bytes": (external("w.bin"), "only a model given by its path")},
}  # fmt: skip
CASES = [
    pytest.param(proto, error, message, id=wrong)
    for error, models in HOSTILE.items()
    for wrong, (proto, message) in models.items()
]


@pytest.mark.parametrize(("proto", "error", "message"), CASES)
def test_is_refused(proto: Any, error: type[Exception], message: str) -> None:
    data = proto.SerializeToString()
    began = time.process_time()
    with pytest.raises(error, match=message):
        from_onnx(data)
    assert time.process_time() - began < 10


def test_every_prefix_of_a_file_is_an_error() -> None:
    data = image_net().SerializeToString()
    for length in range(0, len(data) - 1, 7):
        with pytest.raises((FileError, SpecError, UnsupportedError)):
            from_onnx(data[:length])


def test_what_is_no_model() -> None:
    with pytest.raises(InputError, match=r"path, bytes or an onnx\.ModelProto, got int"):
        from_onnx(3)
    with pytest.raises(FileError, match=r"nowhere\.onnx: cannot read"):
        from_onnx("nowhere.onnx")
    with pytest.raises(FileError, match="not an ONNX model"):
        from_onnx(b"not a model")


class TestExternalData:
    """Data beside the model is read from the model's own folder, and from nowhere else."""

    def write(self, folder: Path, proto: Any) -> Path:
        path = folder / "model.onnx"
        path.write_bytes(proto.SerializeToString())
        return path

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """The model's own, beside data that is not its."""
        (tmp_path / "w.bin").write_bytes(bytes(16))
        (tmp_path / "folder").mkdir()
        return tmp_path / "folder"

    def test_is_read(self, tmp_path: Path) -> None:
        weights = noise(4, seed=3)
        (tmp_path / "w.bin").write_bytes(b"....." + weights.tobytes())
        spec = from_onnx(self.write(tmp_path, external("w.bin", offset="5", length="16")))
        assert np.array_equal(spec.params["w"], weights)

    @pytest.mark.parametrize("location", ["../w.bin", "sub/../../w.bin", "", "/etc/hostname", "w\0.bin", "."])
    def test_elsewhere_is_refused(self, folder: Path, location: str) -> None:
        with pytest.raises(FileError, match="external data"):
            from_onnx(self.write(folder, external(location)))

    def test_link_to_elsewhere_is_refused(self, folder: Path) -> None:
        (folder / "link.bin").symlink_to(folder.parent / "w.bin")
        with pytest.raises(FileError, match="not inside the model's own folder"):
            from_onnx(self.write(folder, external("link.bin")))

    @pytest.mark.parametrize(
        "more",
        [{"length": "99"}, {"length": "x"}, {"offset": "-4"}, {"offset": "1"}, {"offset": str(1 << 70)}],
    )
    def test_wrong_extent_is_refused(self, folder: Path, more: dict[str, str]) -> None:
        with pytest.raises(FileError, match="initialiser 'w'"):
            from_onnx(self.write(folder.parent, external("w.bin", **more)))

    def test_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(FileError, match="is not there"):
            from_onnx(self.write(tmp_path, external("w.bin")))
