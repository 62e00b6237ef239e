"""`verify` and `bisect` look at the GPU engine, too: what is right passes, what is planted is found."""

import subprocess
import sys
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import bslite
from bslite.engines import cuda
from bslite.engines.cuda import devices
from bslite.errors import EngineError
from bslite.spec import Array

X = torch.linspace(-2, 2, 2 * 3 * 6 * 6).reshape(2, 3, 6, 6)


@pytest.fixture
def net() -> nn.Sequential:
    """Convolution, pooling, a stack, a classifier."""
    torch.manual_seed(0)
    layers = {
        "conv": nn.Conv2d(3, 4, 3, padding=1), "relu": nn.ReLU(), "pool": nn.MaxPool2d(2), "tanh": nn.Tanh(),
        "mean": nn.AdaptiveAvgPool2d(1), "flat": nn.Flatten(), "fc": nn.Linear(4, 3), "out": nn.Softmax(1),
    }  # fmt: skip
    return nn.Sequential(OrderedDict(layers)).eval()


def spoil(monkeypatch: pytest.MonkeyPatch, layer: str) -> None:
    """Traces of the GPU engine have a wrong element in this layer."""
    honest = cuda.trace

    def trace(*args: Any, **kwargs: Any) -> Iterator[tuple[str, Array]]:
        for name, value in honest(*args, **kwargs):
            yield name, value + (name == layer) * np.float32(0.01)

    monkeypatch.setattr(cuda, "trace", trace)


def test_verify(net: nn.Sequential, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = bslite.from_torch(net, (X,))
    found = bslite.verify(spec, X, module=net, backend="cuda")
    assert found.passed, found
    assert (found.backend, found.threads_agree) == ("cuda", None)
    assert {c.op for c in found.layers} >= {"tanh", "linear", "softmax"}
    assert "output(s) on cuda, 0 out of bound" in found.summary()
    assert "thread" not in found.summary()
    wrong = found.layers[1].name
    spoil(monkeypatch, wrong)
    found = bslite.verify(spec, X, backend="cuda")
    assert [c.name for c in found.failures] == [wrong]
    assert bslite.verify(spec, X).passed  # the CPU's engine is another


def test_verify_sees_bits_that_change(net: nn.Sequential, monkeypatch: pytest.MonkeyPatch) -> None:
    honest, runs = cuda.run, []

    def run(*args: Any, **kwargs: Any) -> list[Array]:
        runs.append(1)
        return [y + np.float32(len(runs) * 1e-6) for y in honest(*args, **kwargs)]

    monkeypatch.setattr(cuda, "run", run)
    found = bslite.verify(bslite.from_torch(net, (X,)), X, backend="cuda")
    assert not found.repeatable
    assert not found.passed


def test_backends_that_cannot_be(net: nn.Sequential, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(device: int = 0) -> Any:
        raise EngineError("backend 'cuda': there is no CUDA device here (none)")

    spec = bslite.from_torch(net, (X,))
    with pytest.raises(EngineError, match="backend 'reference' is not one of 'cpu', 'cuda'"):
        bslite.verify(spec, X, backend="reference")
    with pytest.raises(EngineError, match="backend 'gpu' is not one of 'cpu', 'cuda'"):
        bslite.bisect(net, X, backend="gpu")
    monkeypatch.setattr(devices, "_driver", none)
    monkeypatch.setattr(cuda.engine, "driver_for", none)
    for call in (bslite.verify, lambda spec, x, backend: bslite.bisect(net, x, backend=backend)):
        with pytest.raises(EngineError, match="no CUDA device"):
            call(bslite.from_torch(net, (X,)), X, backend="cuda")


def test_bisect(net: nn.Sequential, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = bslite.bisect(net, X, backend="cuda", folder=tmp_path)
    assert found.passed, found
    spoil(monkeypatch, "fc")
    found = bslite.bisect(net, X, backend="cuda", folder=tmp_path)
    assert (found.layer, found.op, found.fault) == ("fc", "linear", "engine")
    script = (tmp_path / "reproduce.py").read_text()
    assert "backend='cuda'" in script
    done = subprocess.run([sys.executable, str(tmp_path / "reproduce.py")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr  # nothing is planted there
    assert "on cuda" in done.stdout
