"""Files of every format that there has been are read for ever, and give what they gave."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from support.check import rel_l2

from bslite import compile, load, run, verify
from bslite.spec.file import KEY, VERSION

FILES = Path(__file__).parent / "files"
LABELS = {1: ("again", "rows"), 2: ("scores", "rows of the table")}


def test_every_format_has_its_file() -> None:
    assert sorted(FILES.glob("*.safetensors")) == [
        FILES / f"format-{version}.safetensors" for version in range(1, VERSION + 1)
    ]


@pytest.mark.parametrize("version", range(1, VERSION + 1))
def test_an_old_file_gives_what_it_gave(version: int) -> None:
    path = FILES / f"format-{version}.safetensors"
    with safe_open(path, framework="numpy") as file:
        assert json.loads(file.metadata()[KEY])["version"] == version
    spec = load(path)
    assert spec.labels == LABELS[version]
    assert [(i.name, i.shape, i.dtype) for i in spec.inputs] == [
        ("x", ("N", 3, "H", "W"), "float32"),
        ("ids", ("N", 2), "int64"),
    ]
    kept = np.load(path.with_suffix(".npz"), allow_pickle=False)
    inputs = [kept["x"], kept["ids"]]
    for made, then in zip(
        run(spec, inputs, backend="reference64"), (kept["scores"], kept["rows"]), strict=True
    ):
        assert rel_l2(made, then) <= 1e-12
    assert verify(spec, inputs).passed
    with compile(path) as model:
        assert tuple(model(*inputs)) == LABELS[version]
