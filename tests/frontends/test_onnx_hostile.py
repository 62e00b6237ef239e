"""ONNX models that are wrong, or made to harm: each is a bslite error that says what and where."""

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.noise import noise
from support.onnx_models import helper, i64, image_net, model, onnx, value

from bslite import FileError, InputError, SpecError, UnsupportedError, from_onnx

node = helper.make_node
X = [value("x", [2, 3, 4, 4])]


def broken_tensor(**fields: Any) -> Any:
    """A model that adds an initialiser with some fields of its proto replaced."""
    made = model([node("Add", ["x", "w"], ["y"])], X, ["y"], {"w": noise(4)})
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


def one(op: str, *inputs: str, stored: dict[str, Any] | None = None, opset: int = 17, **attrs: Any) -> Any:
    return model([node(op, list(inputs), ["y"], name="it", **attrs)], X, ["y"], stored, opset)


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


def two_attributes() -> Any:
    made = one("Softmax", "x", axis=1)
    made.graph.node[0].attribute.append(made.graph.node[0].attribute[0])
    return made


def lying_attribute() -> Any:
    made = one("Softmax", "x", axis=1)
    made.graph.node[0].attribute[0].type = onnx.AttributeProto.FLOAT
    return made


def without_opset() -> Any:
    made = one("Relu", "x")
    del made.opset_import[:]
    return made


def two_initialisers() -> Any:
    made = one("Add", "x", "w", stored={"w": noise(4)})
    made.graph.initializer.append(made.graph.initializer[0])
    return made


HUGE = {"s": i64(1 << 20, 1 << 20)}
HOSTILE: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "cycle": (cyclic, SpecError, "node 'a' reads 'b', which is neither an input nor made by an earlier"),
    "value made twice": (twice_defined, SpecError, "'a' is made twice"),
    "two inputs of one name": (
        lambda: model([node("Relu", ["x"], ["y"])], [*X, *X], ["y"]),
        SpecError,
        "two inputs are called 'x'",
    ),
    "two initialisers of one name": (two_initialisers, SpecError, "two initialisers are called 'w'"),
    "an output that nothing makes": (
        lambda: model([node("Relu", ["x"], ["y"])], X, ["z"]),
        SpecError,
        "its output 'z' is made by no node",
    ),
    "unknown operator": (lambda: one("Frobnicate", "x"), UnsupportedError, "1 x Frobnicate: no oper.*at it"),
    "no opset": (without_opset, SpecError, "does not say which version"),
    "old opset": (lambda: one("Relu", "x", opset=6), UnsupportedError, "opset 6; bslite reads 7"),
    "future opset": (lambda: one("Relu", "x", opset=9999), UnsupportedError, "opset 9999"),
    "unknown attribute": (lambda: one("Relu", "x", alpha=1.0), SpecError, "node 'it'.*no attribute 'alpha'"),
    "attribute of another kind": (lambda: one("Softmax", "x", axis=1.0), SpecError, "of the wrong kind"),
    "attribute that lies": (lying_attribute, SpecError, "node 'it'.*attribute 'axis'.*wrong kind"),
    "attribute twice": (two_attributes, SpecError, "node 'it'.*two attributes 'axis'"),
    "attribute missing": (
        lambda: one("Concat", "x", "x"),
        SpecError,
        "node 'it'.*needs the attribute 'axis'",
    ),
    "too many inputs": (lambda: one("Relu", "x", "x"), SpecError, "node 'it'.*has 2 inputs, expected 1 to 1"),
    "too few inputs": (lambda: one("Add", "x"), SpecError, "node 'it'.*has 1 inputs, expected 2"),
    "input left out": (lambda: one("Add", "x", ""), SpecError, "input 1 .* is left out"),
    "axis out of range": (
        lambda: one("Softmax", "x", axis=7),
        SpecError,
        "node 'it'.*axis 7 is out of range",
    ),
    "negative pads": (
        lambda: one("Conv", "x", "w", stored={"w": noise(2, 3, 3, 3)}, pads=[-1, 0, 0, 0]),
        SpecError,
        "node 'it'.*negative",
    ),
    "kernel larger than the image": (
        lambda: one("Conv", "x", "w", stored={"w": noise(2, 3, 9, 9)}),
        SpecError,
        "node 'it'",
    ),
    "channels that do not fit": (
        lambda: one("Conv", "x", "w", stored={"w": noise(2, 5, 1, 1)}),
        SpecError,
        "node 'it'.*3 channels",
    ),
    "reshape that does not fit": (
        lambda: one("Reshape", "x", "s", stored={"s": i64(7, -1)}),
        SpecError,
        "node 'it'",
    ),
    "reshape with two holes": (
        lambda: one("Reshape", "x", "s", stored={"s": i64(-1, -1)}),
        SpecError,
        "node 'it'",
    ),
    "sizes that do not broadcast": (
        lambda: one("Add", "x", "w", stored={"w": noise(3)}),
        SpecError,
        "node 'it'.*do not broadcast",
    ),
    "huge constant": (
        lambda: one("ConstantOfShape", "s", stored=HUGE),
        SpecError,
        "node 'it'.*too|more than",
    ),
    "huge expand": (
        lambda: one("Expand", "w", "s", stored={"w": noise(1, 1), **HUGE}),
        SpecError,
        "node 'it'",
    ),
    "huge range": (
        lambda: one(
            "Range", "a", "b", "c", stored=dict(zip("abc", map(np.int64, (0, 1 << 50, 1)), strict=True))
        ),
        SpecError,
        "node 'it'.*more than",
    ),
    "range without a step": (
        lambda: one("Range", "a", "a", "a", stored={"a": np.int64(0)}),
        SpecError,
        "node 'it'.*step of zero",
    ),
    "huge tile": (
        lambda: one("Tile", "x", "s", stored={"s": i64(1 << 20, 1 << 20, 1, 1)}),
        SpecError,
        "node 'it'.*too large",
    ),
    "negative tile": (lambda: one("Tile", "x", "s", stored={"s": i64(1, 1, -1, 1)}), SpecError, "node 'it'"),
    "huge pad": (
        lambda: one("Pad", "x", "s", stored={"s": i64(0, 0, 1 << 40, 0, 0, 0, 0, 0)}),
        SpecError,
        "node 'it'.*too large",
    ),
    "integers divided by zero": (
        lambda: one("Div", "a", "b", stored={"a": i64(1), "b": i64(0)}),
        SpecError,
        "node 'it'.*division by zero",
    ),
    "index out of range": (
        lambda: one("Gather", "x", "s", stored={"s": i64(9)}),
        SpecError,
        "node 'it'.*indices",
    ),
    "split that does not fit": (
        lambda: model([node("Split", ["x", "s"], ["a", "b"], name="it")], X, ["a"], {"s": i64(1, 5)}),
        SpecError,
        "node 'it'.*splits axis 0",
    ),
    "function that calls itself": (recursive, SpecError, "functions within functions"),
    "functions that explode": (explosive, SpecError, "more than 50000 nodes"),
    "huge input": (
        lambda: model([node("Relu", ["x"], ["y"])], [value("x", [1 << 40, 1 << 40])], ["y"]),
        SpecError,
        "input 'x'.*too large",
    ),
    "negative input": (
        lambda: model([node("Relu", ["x"], ["y"])], [value("x", [2, -3])], ["y"]),
        SpecError,
        "input 'x'.*negative",
    ),
    "input of many axes": (
        lambda: model([node("Relu", ["x"], ["y"])], [value("x", [1] * 99)], ["y"]),
        SpecError,
        "input 'x' has 99 dimensions",
    ),
    "input of strings": (
        lambda: model([node("Identity", ["x"], ["y"])], [value("x", [2], onnx.TensorProto.STRING)], ["y"]),
        UnsupportedError,
        "input 'x' is string",
    ),
    "data too short": (lambda: broken_tensor(raw_data=b"abc"), SpecError, "'w': 3 bytes of data do not fill"),
    "dims too large": (lambda: broken_tensor(dims=[1 << 30]), SpecError, "'w': 16 bytes of data do not fill"),
    "dims negative": (lambda: broken_tensor(dims=[-4]), SpecError, "'w' has the shape .* negative"),
    "dims beyond any memory": (
        lambda: broken_tensor(dims=[1 << 62, 1 << 62]),
        SpecError,
        "'w' has the shape .* too large",
    ),
    "numbers too few": (
        lambda: broken_tensor(raw_data=b"", dims=[0]) and _as_numbers([1.0, 2.0]),
        SpecError,
        "2 numbers do not fill",
    ),
    "unknown type": (lambda: broken_tensor(data_type=999), SpecError, "'w' is of type 999"),
    "type of strings": (lambda: broken_tensor(data_type=8), SpecError, "'w' is of type string"),
    "external data of bytes": (lambda: external("w.bin"), FileError, "only a model given by its path"),
}


def _as_numbers(numbers: list[float]) -> Any:
    """The initialiser's data as a list of numbers."""
    made = broken_tensor(float_data=numbers)
    made.graph.initializer[0].ClearField("raw_data")
    return made


@pytest.mark.parametrize(("make", "error", "message"), HOSTILE.values(), ids=HOSTILE)
def test_is_refused(make: Callable[[], Any], error: type[Exception], message: str) -> None:
    data = make().SerializeToString()
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

    def test_is_read(self, tmp_path: Path) -> None:
        weights = noise(4, seed=3)
        (tmp_path / "w.bin").write_bytes(b"....." + weights.tobytes())
        spec = from_onnx(self.write(tmp_path, external("w.bin", offset="5", length="16")))
        assert np.array_equal(spec.params["w"], weights)

    @pytest.mark.parametrize("location", ["../w.bin", "sub/../../w.bin", "", "/etc/hostname", "w\0.bin", "."])
    def test_elsewhere_is_refused(self, tmp_path: Path, location: str) -> None:
        (tmp_path / "w.bin").write_bytes(bytes(16))
        folder = tmp_path / "folder"
        folder.mkdir()
        with pytest.raises(FileError, match="external data"):
            from_onnx(self.write(folder, external(location)))

    def test_link_to_elsewhere_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "w.bin").write_bytes(bytes(16))
        folder = tmp_path / "folder"
        folder.mkdir()
        (folder / "link.bin").symlink_to(tmp_path / "w.bin")
        with pytest.raises(FileError, match="not inside the model's own folder"):
            from_onnx(self.write(folder, external("link.bin")))

    @pytest.mark.parametrize(
        "more",
        [{"length": "99"}, {"length": "x"}, {"offset": "-4"}, {"offset": "1"}, {"offset": str(1 << 70)}],
    )
    def test_wrong_extent_is_refused(self, tmp_path: Path, more: dict[str, str]) -> None:
        (tmp_path / "w.bin").write_bytes(bytes(16))
        with pytest.raises(FileError, match="initialiser 'w'"):
            from_onnx(self.write(tmp_path, external("w.bin", **more)))

    def test_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(FileError, match="is not there"):
            from_onnx(self.write(tmp_path, external("w.bin")))
