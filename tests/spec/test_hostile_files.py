"""Model files made to harm: each is a FileError that names the file and, where there is one, the layer."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from support.model_files import small_model

from bslite.errors import FileError
from bslite.spec import ModelSpec, load
from bslite.spec.file import graph_json


@pytest.fixture
def tiny() -> ModelSpec:
    return small_model()


Change = Callable[[dict[str, Any]], Any]


def write_graph(path: Path, spec: ModelSpec, graph: Any) -> None:
    dense = {key: np.asarray(array, order="C") for key, array in spec.params.items()}
    save_file(dense, path, metadata={"bslite": graph if isinstance(graph, str) else json.dumps(graph)})


def parsed(spec: ModelSpec) -> dict[str, Any]:
    """The graph as data, without the checksum: an attacker knows how to compute one."""
    graph: dict[str, Any] = json.loads(graph_json(spec))
    del graph["crc32"]
    return graph


def layer(graph: dict[str, Any], name: str) -> dict[str, Any]:
    return next(entry for entry in graph["layers"] if entry["name"] == name)


HOSTILE: dict[str, tuple[Change, str]] = {
    "future version": (lambda g: g.update(version=3), "format version 3, this bslite reads up to 2; upgrade"),
    "version zero": (lambda g: g.update(version=0), "unknown format"),
    "version text": (lambda g: g.update(version="1"), "the model: 'version' is '1'"),
    "version true": (lambda g: g.update(version=True), "the model: 'version' is True"),
    "unknown entry": (lambda g: g.update(extra=1), "the graph has unknown entries: extra"),
    "checksum": (lambda g: g.update(crc32="00000000"), "the graph is damaged"),
    "other format": (lambda g: g.update(format="onnx"), "unknown format 'onnx'"),
    "no layers": (lambda g: g.pop("layers"), "the model has no 'layers'"),
    "layers object": (lambda g: g.update(layers={}), "'layers' is {}, expected a JSON list"),
    "layer number": (lambda g: g["layers"].append(3), "layer 6 is a JSON int, expected an object"),
    "name number": (lambda g: layer(g, "z").update(name=3), "layer 0: 'name' is 3"),
    "no op": (lambda g: layer(g, "z").pop("op"), "layer 'z' has no 'op'"),
    "unknown op": (lambda g: layer(g, "act").update(op="leaky_rely"), "layer 'act': unknown op 'leaky_rely'"),
    "op list": (lambda g: layer(g, "act").update(op=["relu"]), "layer 'act': 'op' is"),
    "unknown input": (lambda g: layer(g, "act").update(inputs=["no"]), "layer 'act' reads 'no'"),
    "input list": (lambda g: layer(g, "act").update(inputs=[["z"]]), "layer 'act': 'inputs' is"),
    "input text": (lambda g: layer(g, "act").update(inputs="z"), "layer 'act': 'inputs' is 'z'"),
    "cycle": (lambda g: layer(g, "z").update(inputs=["act"]), "layer 'z' reads 'act'"),
    "itself": (lambda g: layer(g, "act").update(inputs=["act"]), "layer 'act' reads 'act'"),
    "duplicate": (lambda g: layer(g, "act").update(name="z"), "reads 'act'|'z' is used twice"),
    "too many inputs": (
        lambda g: layer(g, "act").update(inputs=["z"] * 3),
        "layer 'act': op 'leaky_relu' takes",
    ),
    "empty name": (lambda g: layer(g, "mul").update(name=""), "empty name"),
    "param number": (lambda g: layer(g, "z").update(params={"weight": 1}), "layer 'z': 'params' is"),
    "param unknown": (
        lambda g: layer(g, "z").update(params={"weight": "w"}),
        "layer 'z': parameter 'weight'",
    ),
    "param role": (
        lambda g: layer(g, "act").update(params={"w": "a"}),
        "layer 'act': op .* no parameter 'w'",
    ),
    "attr unknown": (lambda g: layer(g, "act")["attrs"].update(x=1), "layer 'act': .*no attribute 'x'"),
    "attr text": (lambda g: layer(g, "z")["attrs"].update(groups="1"), "layer 'z': .*groups='1'"),
    "attr float": (lambda g: layer(g, "z")["attrs"].update(groups=1.0), "layer 'z': .*groups=1.0"),
    "attr null": (lambda g: layer(g, "z")["attrs"].update(stride=None), "layer 'z': .*stride=None"),
    "attr object": (lambda g: layer(g, "z")["attrs"].update(stride={"a": 1}), "layer 'z': .*not understood"),
    "attr nan": (lambda g: layer(g, "act")["attrs"].update(negative_slope={"float": "nan"}), "layer 'act'"),
    "attr long": (lambda g: layer(g, "z")["attrs"].update(stride=[1] * 10**5), "layer 'z': .*stride="),
    "attr huge": (lambda g: layer(g, "z")["attrs"].update(dilation=2**62), "layer 'z': .*too small"),
    "attrs list": (lambda g: layer(g, "z").update(attrs=[]), r"layer 'z': 'attrs' is \[\]"),
    "huge padding": (lambda g: layer(g, "pad")["attrs"].update(pads=[2**62] * 8), None),
    "wrong bias": (lambda g: layer(g, "z")["params"].update(bias="strange2"), "layer 'z': parameter 'bias'"),
    "wrong shape": (lambda g: layer(g, "z")["params"].update(weight="unused"), "layer 'z': op 'conv2d'"),
    "no outputs": (lambda g: g.update(outputs=[]), "has no output"),
    "unknown output": (lambda g: g.update(outputs=["nobody"]), "output 'nobody'"),
    "output number": (lambda g: g.update(outputs=[0]), "'outputs' is"),
    "no inputs": (lambda g: g.update(inputs=[]), "has no input"),
    "huge example": (lambda g: g["inputs"][0].update(example=[1, 3, 2**62, 2**62]), None),
    "example text": (lambda g: g["inputs"][0].update(example=[1, 3, "H", 6]), "input 'x': example"),
    "example zero": (lambda g: g["inputs"][0].update(example=[1, 3, 0, 6]), "input 'x': size 0"),
    "example rank": (lambda g: g["inputs"][0].update(example=[1]), "input 'x': got rank 1"),
    "no example": (lambda g: g["inputs"][0].update(example=[]), "input 'x': give an example"),
    "shape float": (lambda g: g["inputs"][0].update(shape=[1.5, 3, "H", "W"]), "input 'x': size 1.5"),
    "shape nested": (lambda g: g["inputs"][0].update(shape=[[1], 3, "H", "W"]), "input 'x': size"),
    "dtype": (lambda g: g["inputs"][0].update(dtype="object"), "input 'x': dtype 'object'"),
    "unlisted tensor": (lambda g: g["params"].pop("a"), "tensors the graph does not list: a"),
    "missing tensor": (lambda g: g["params"].update(b={"shape": [1]}), "parameter 'b' is listed but not in"),
    "tensor shape": (lambda g: g["params"]["a"].update(shape=[2, 2]), "parameter 'a' has shape"),
    "tensor shape text": (lambda g: g["params"]["a"].update(shape="4"), "parameter 'a': 'shape' is '4'"),
    "tensor checksum": (lambda g: g["params"]["a"].update(crc32="00000000"), "parameter 'a' is damaged"),
    "tensor entry": (lambda g: g["params"].update(a=[4]), "parameter 'a' is a JSON list"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_graphs(kind: str, tiny: ModelSpec, tmp_path: Path) -> None:
    change, words = HOSTILE[kind]
    graph = parsed(tiny)
    change(graph)
    path = tmp_path / "model"
    write_graph(path, tiny, graph)
    if words is None:  # absurd, but a model: nothing is allocated to load it
        assert isinstance(load(path), ModelSpec)
        return
    with pytest.raises(FileError, match=words) as e:
        load(path)
    assert str(e.value).startswith(str(path))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not valid JSON"),
        ("[]", "JSON list, expected an object"),
        ('{"version": 1, "version": 1}', "the key 'version' is repeated"),
        ('{"version": NaN}', "NaN is not JSON"),
        ('{"version": -Infinity}', "-Infinity is not JSON"),
        ('{"version": 1' + "0" * 5000 + "}", "too large"),
        ('{"version": 9223372036854775808}', "too large"),
        ("[" * 100_000, "not valid JSON"),
        ('{"version": 1e999, "format": "bslite"}', "'version' is inf"),
        ("null", "expected an object"),
    ],
    ids=lambda value: value[:24],
)
def test_hostile_json(text: str, words: str, tiny: ModelSpec, tmp_path: Path) -> None:
    write_graph(tmp_path / "model", tiny, text)
    with pytest.raises(FileError, match=words):
        load(tmp_path / "model")


@pytest.mark.parametrize("dtype", ["float64", "float16", "int16", "uint16"])
def test_tensors_of_another_dtype(dtype: str, tiny: ModelSpec, tmp_path: Path) -> None:
    params = {key: np.asarray(array, order="C") for key, array in tiny.params.items()}
    params["a"] = params["a"].astype(dtype)
    save_file(params, tmp_path / "model", metadata={"bslite": graph_json(tiny)})
    with pytest.raises(FileError, match=r"tensor 'a' has dtype .*, expected F32"):
        load(tmp_path / "model")


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [0, 2**63], "data_offsets": [0, 0]},
        {"dtype": "F32", "shape": [0] * 100, "data_offsets": [0, 0]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0, 2**60]},
        {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]},
        {"dtype": "nonsense", "shape": [1], "data_offsets": [0, 4]},
        None,
    ],
    ids=str,
)
def test_hostile_tensor_headers(entry: Any, tiny: ModelSpec, tmp_path: Path) -> None:
    graph = parsed(tiny)
    graph["params"] = {"w": {"shape": entry["shape"] if entry else []}}
    header = json.dumps({"__metadata__": {"bslite": json.dumps(graph)}, "w": entry}).encode()
    path = tmp_path / "model"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    with pytest.raises(FileError, match="model"):
        load(path)
