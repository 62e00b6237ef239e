"""The model file: what goes in comes out bit for bit, and whatever damages it is noticed."""

import json
import os
import random
import struct
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file
from support.check import single_op_spec
from support.graphs import network
from support.model_files import small_model

from bslite import ops
from bslite.errors import FileError, InputError, SpecError
from bslite.spec import ModelSpec, load, save
from bslite.spec.file import graph_json


def assert_same(got: ModelSpec, want: ModelSpec) -> None:
    parts = attrgetter("name", "inputs", "nodes", "outputs")
    assert parts(got) == parts(want)
    for mine, theirs in zip(got.nodes, want.nodes, strict=True):
        for key, value in theirs.attrs.items():
            assert type(mine.attrs[key]) is type(value), f"{theirs.name}.{key}"
            assert repr(mine.attrs[key]) == repr(value)
    assert list(got.params) == list(want.params)
    for key, array in want.params.items():
        assert got.params[key].dtype == array.dtype
        assert got.params[key].shape == array.shape
        assert got.params[key].tobytes() == array.tobytes()


@pytest.fixture
def tiny() -> ModelSpec:
    return small_model()


def test_round_trip(tiny: ModelSpec, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save(tiny, path)
    assert_same(load(path), tiny)
    tiny.save(str(path))  # over the old one
    assert_same(load(str(path)), tiny)
    assert os.listdir(tmp_path) == ["model.safetensors"]


def test_round_trip_of_a_real_network(tmp_path: Path) -> None:
    spec = network("densenet121")
    save(spec, tmp_path / "model")
    assert_same(load(tmp_path / "model"), spec)


@pytest.mark.parametrize("name", sorted(ops.REGISTRY))
def test_every_op_round_trips(name: str, tmp_path: Path) -> None:
    op = ops.get(name)
    for number, case in enumerate(op.cases()):
        spec, _ = single_op_spec(op, case)
        save(spec, tmp_path / f"{number}")
        assert_same(load(tmp_path / f"{number}"), spec)


def test_file_opens_without_bslite(tiny: ModelSpec, path: Path) -> None:
    with safe_open(path, framework="numpy") as file:
        graph = json.loads(file.metadata()["bslite"], parse_constant=pytest.fail)
        assert sorted(file.keys()) == sorted(tiny.params)
        assert np.array_equal(file.get_tensor("z.weight"), tiny.params["z.weight"])
    assert (graph["format"], graph["version"]) == ("bslite", 1)
    assert [layer["name"] for layer in graph["layers"]] == [node.name for node in tiny.nodes]


def test_same_model_same_bytes_one_line_per_layer(tiny: ModelSpec, tmp_path: Path) -> None:
    save(tiny, tmp_path / "one")
    save(load(tmp_path / "one"), tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    text = graph_json(tiny)
    assert sum('"op"' in line for line in text.splitlines()) == len(tiny.nodes)
    params = {**tiny.params, "scale": np.array(4.5, np.float32)}
    changed = graph_json(tiny.replace(params=params)).splitlines()
    differ = [b for a, b in zip(text.splitlines(), changed, strict=True) if a != b]
    assert [line.split()[0] for line in differ] == ['"scale":', '"crc32":']


def test_save_is_all_or_nothing(tiny: ModelSpec, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(FileError, match=r"model: cannot be written \(disk full\)"):
        save(tiny.replace(name="other"), path)
    assert_same(load(path), tiny)
    assert os.listdir(path.parent) == ["model"]


def test_save_through_a_link_keeps_the_link(tiny: ModelSpec, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "model")
    save(tiny, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert_same(load(tmp_path / "model"), tiny)


def test_what_cannot_be_saved(tiny: ModelSpec, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be written"):
        save(tiny, tmp_path / "no" / "such" / "folder")
    with pytest.raises(FileError, match="cannot be written"):
        save(tiny, tmp_path)
    for key in ("__metadata__", "lone \udc80 surrogate"):
        with pytest.raises((SpecError, FileError)):
            save(tiny.replace(params={**tiny.params, key: np.zeros(1, np.float32)}), tmp_path / "model")
    assert os.listdir(tmp_path) == []


def test_files_that_are_no_models(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="none: no such file"):
        load(tmp_path / "none")
    with pytest.raises(FileError, match="not a regular file"):
        load(tmp_path)
    with pytest.raises(InputError, match="expected the path of a file, got NoneType"):
        load(None)  # type: ignore[arg-type]
    path = tmp_path / "file"
    for content in (b"", b"hello", b"\x80\x04\x95pickle", b"PK\x03\x04" * 100, bytes(4096), b"\xff" * 64):
        path.write_bytes(content)
        with pytest.raises(FileError, match="file: not a readable safetensors file"):
            load(path)
    save_file({"w": np.zeros(3, np.float32)}, path)
    with pytest.raises(FileError, match="file: not a bslite model"):
        load(path)


@pytest.fixture
def path(tiny: ModelSpec, tmp_path: Path) -> Path:
    """Where ``tiny`` is saved."""
    save(tiny, tmp_path / "model")
    return tmp_path / "model"


def test_truncated_anywhere(path: Path) -> None:
    content = path.read_bytes()
    for length in sorted({*range(0, len(content), 7), *range(16), *range(len(content) - 16, len(content))}):
        path.write_bytes(content[:length])
        with pytest.raises(FileError, match="model"):
            load(path)
    path.write_bytes(content + b"more")
    with pytest.raises(FileError, match="model"):
        load(path)


def test_flipped_parameter_bits_are_found(path: Path) -> None:
    content = bytearray(path.read_bytes())
    [header] = struct.unpack("<Q", content[:8])
    for position in range(8 + header, len(content)):
        damaged = content.copy()
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        with pytest.raises(FileError, match=r"parameter '.*' is damaged"):
            load(path)


def test_damaged_header(tiny: ModelSpec, path: Path) -> None:
    """Whatever byte of the header changes: an error, or the very same model (white space, a lower-case e)."""
    content = path.read_bytes()
    [header] = struct.unpack("<Q", content[:8])
    rng = random.Random(0)
    outcomes = []
    for _ in range(1500):
        damaged = bytearray(content)
        for _ in range(rng.choice((1, 1, 1, 2, 8))):
            damaged[rng.randrange(8 + header)] = rng.choice((rng.randrange(256), *b'0129-.eE"[]{},:n \\'))
        path.write_bytes(damaged)
        try:
            assert_same(load(path), tiny)
            outcomes.append("same")
        except FileError as e:
            outcomes.append("named" if str(path) in str(e) else str(e))
    assert set(outcomes) == {"named", "same"}
    assert outcomes.count("same") < 100  # nearly all of these drew the byte that was there
