"""Resident memory of one rival with one network, measured in a process of its own.

The process first makes and runs a small network with the same rival, so that neither its libraries nor its
threads count. Then it makes the rival from the network's file, as a program that serves would, calls it once,
and watches the next calls.
"""

import functools
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory import Growth, apart
from benchmarks.peers.columns import COLUMNS
from benchmarks.peers.engines import TorchEager
from benchmarks.peers.nets import Net, import_models
from bslite.spec import Array, ModelSpec

RUNS = 3
CAPTION = (
    "resident memory of a process with this engine alone, beyond what the libraries and the input take: "
    "`kept` after the runs, weights included / `peak` during them. What was needed only to make the model "
    "ready (compiling, converting) does not count"
)


class Stored:
    """A network in files; what `COLUMNS` are made from, each form loaded when it is asked for."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    @functools.cached_property
    def x(self) -> Array:
        """The input."""
        return np.asarray(np.load(self.path.with_suffix(".npy")))

    @property
    def spec(self) -> ModelSpec:
        """The model in bslite."""
        from bslite import load

        return load(self.path.with_suffix(".safetensors"))

    @property
    def module(self) -> Any:
        """torch's module."""
        import torch

        return torch.load(self.path.with_suffix(".pt"), weights_only=False)  # written by `store`

    @property
    def onnx(self) -> Path:
        """Path of the exported model."""
        return self.path.with_suffix(".onnx")


def store(net: Net) -> str:
    """Write all forms of a network into its folder, once; the path, without its suffix, for `Stored`."""
    import torch

    path = net.onnx.with_suffix("")
    last = path.with_suffix(".npy")
    if not last.exists():
        net.spec.save(path.with_suffix(".safetensors"))
        torch.save(net.module, path.with_suffix(".pt"))
        np.save(last, net.x)
    return str(path)


def memory_of(net: Net, engine: str, threads: int) -> dict[str, int]:
    """Bytes: ``kept`` and ``peak`` as `CAPTION` says, ``making`` the peak until the first answer."""
    import torch

    small = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU()).eval()
    warmup = Net("small", small, np.zeros((1, 3, 8, 8), np.float32), net.folder)
    case = {"model": store(net), "warmup": store(warmup), "engine": engine, "threads": threads}
    return apart(__name__, case)


def measure(model: str, warmup: str, engine: str, threads: int) -> dict[str, int]:
    """As `memory_of`, of this process, which must be a fresh one."""
    if issubclass(COLUMNS[engine], TorchEager):
        import_models()  # before the growth is measured: unpickling would import it
    small = COLUMNS[engine](Stored(warmup), threads)
    for _ in range(2):
        small()
    del small
    net = Stored(model)
    _ = net.x
    growth = Growth()
    rival = COLUMNS[engine](net, threads)
    del net
    rival()  # some only now choose kernels and pack weights
    making = growth.peak()
    growth.restart_peak()
    for _ in range(RUNS):
        rival()
    peak = growth.peak()
    growth.restart_peak()  # so that no memory counts that is free by now
    return {"kept": growth.now(), "peak": peak, "making": making}
