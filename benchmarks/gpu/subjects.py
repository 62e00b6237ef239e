"""The cases of the three parts: torchvision's networks, BrainSlug's stacks, DeepBench's recurrent layers."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.deepbench.layer import Layer
from benchmarks.deepbench.points import Point
from benchmarks.gpu.case import Case
from benchmarks.gpu.device import Host
from benchmarks.peers.nets import make
from benchmarks.stacks import Stack


def network(name: str, batches: Sequence[int], device: Host, seed: int = 0) -> list[Case]:
    """One of torchvision's with seeded weights, a case for each batch size."""
    with tempfile.TemporaryDirectory() as folder:
        net = make(name, max(batches), seed, Path(folder))
    return [Case(name, net.module, net.x[:batch], lambda: net.spec, device) for batch in batches]


def stack(depth: int, shape: tuple[int, int, int, int], device: Host) -> Case:
    """(max_pool 3x3, batch_norm, relu) ``depth`` times, images channels-last."""
    made = Stack(depth, shape)
    return Case(made.name, made.module, made.x, lambda: made.spec, device)


def recurrent(point: Point, batches: Sequence[int], device: Host) -> list[Case]:
    """``[T, N, H]`` through an LSTM or GRU, a case for each batch size; its outputs are the answer."""
    layer = Layer(point, max(batches))
    x = [np.ascontiguousarray(layer.x[:, :batch]) for batch in batches]
    return [Case(point.name, layer.module, each, lambda: layer.spec, device, axis=1) for each in x]
