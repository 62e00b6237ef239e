"""What importing costs: nothing heavy comes with ``import bslite``, and torch only with the user's own."""

import pytest
from support.process import printed

HEAVY = {"torch", "numba", "llvmlite", "onnx", "PIL", "rich", "typer"}

RUN = """
import numpy as np
from bslite.frontends.weights.state_dict import from_state_dict
from bslite.frontends.weights.architectures.random_weights import random_state_dict
spec = from_state_dict("squeezenet1_1", random_state_dict("squeezenet1_1"))
y = bslite.run(spec, np.ones((1, 3, 64, 64), np.float32))
assert y.shape == (1, 1000)
assert bslite.verify(spec, np.ones((1, 3, 64, 64), np.float32)).passed
"""


def loaded_after(code: str) -> set[str]:
    """Top-level modules in a fresh process that has run ``code``."""
    script = f"import sys, bslite\n{code}\nprint('\\n'.join(m for m in sys.modules if '.' not in m))"
    return set(printed(script).split())


def test_import_brings_nothing_heavy() -> None:
    assert not loaded_after("").intersection(HEAVY | {"numpy", "safetensors"})


def test_import_reads_two_files_of_bslite() -> None:
    code = "print(*(m for m in sys.modules if m.startswith('bslite.')))"
    assert {m for m in loaded_after(code) if m.startswith("bslite.")} == {"bslite.errors"}


def test_a_model_is_described_without_an_engine() -> None:
    code = "spec = bslite.ModelSpec; bslite.load; bslite.from_state_dict; import bslite.reference"
    assert not loaded_after(code).intersection(HEAVY)


def test_a_model_runs_without_torch() -> None:
    loaded = loaded_after(RUN)
    assert "numba" in loaded
    assert not loaded.intersection({"torch", "onnx", "PIL", "rich", "typer"})


def test_an_onnx_model_is_read_without_an_engine() -> None:
    pytest.importorskip("onnx")
    assert not loaded_after("import bslite.onnx.model").intersection({"torch", "numba", "llvmlite"})


def test_help_is_quick() -> None:
    pytest.importorskip("typer")
    loaded = loaded_after("from bslite.cli.app import app")
    assert not loaded.intersection({"torch", "numba", "PIL"})
