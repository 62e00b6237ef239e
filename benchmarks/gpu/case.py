"""What is measured: a module and its input, the same in bslite, and the true answer, worked out on the
device; of torchvision's networks, BrainSlug's stacks and DeepBench's recurrent layers.
"""

import copy
import functools
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.deepbench.layer import Layer
from benchmarks.deepbench.points import Point
from benchmarks.gpu.device import Host
from benchmarks.peers.nets import distance, make
from benchmarks.stacks import Stack
from bslite.spec import Array, ModelSpec
from bslite.verification import FACTOR, TINY

BLOCKS = 3  # of a stack, that one launch takes at the speed of memory
CHECKED = 4  # items of a batch that are compared with float64


class Case:
    """``axis`` is the batch's, in x and in the answer; ``made`` makes the ModelSpec, once it is asked for;
    ``copies``: of x, which a run takes as long as at least, where that is its floor.
    """

    def __init__(
        self, name: str, module: Any, x: Array, made: Callable[[], ModelSpec], device: Host, axis: int = 0,
        copies: int = 0,
    ) -> None:  # fmt: skip
        self.name, self.module, self.x, self.axis, self.copies = name, module, x, axis, copies
        self._made, self._device = made, device

    @property
    def batch(self) -> int:
        """Items at once."""
        return int(self.x.shape[self.axis])

    @property
    def tensor(self) -> Any:
        """The input, in the host's memory."""
        import torch

        return torch.from_numpy(self.x)

    @functools.cached_property
    def spec(self) -> ModelSpec:
        """The model in bslite."""
        return self._made()

    def few(self, array: Array) -> Array:
        """The items that are compared."""
        return np.take(array, range(min(self.batch, CHECKED)), self.axis)

    @functools.cached_property
    def _answers(self) -> tuple[Array, float]:
        """The answer in float64, and how far torch's in float32 is from it."""
        import torch

        x = self._device.put(torch.from_numpy(np.ascontiguousarray(self.few(self.x))))
        found = []
        with torch.no_grad(), self._device.unsearched():
            for dtype in (torch.float64, torch.float32):
                module = self._device.put(copy.deepcopy(self.module).to(dtype))
                made = module(x.to(dtype))
                found.append(np.asarray((made[0] if isinstance(made, tuple) else made).cpu().numpy()))
        return found[0], distance(found[1], found[0])

    @property
    def bound(self) -> float:
        """What an answer may be off by: a few times torch's own error in float32."""
        return FACTOR * self._answers[1] + TINY

    def error(self, answer: Array) -> float:
        """Relative L2 distance of an answer from the true one; infinite for another number of items."""
        if answer.shape[self.axis] != self.batch:
            return float("inf")
        return distance(self.few(answer), self._answers[0])


def network(name: str, batches: Sequence[int], device: Host, seed: int = 0) -> list[Case]:
    """One of torchvision's with seeded weights, a case for each batch size."""
    with tempfile.TemporaryDirectory() as folder:
        net = make(name, max(batches), seed, Path(folder))
    return [Case(name, net.module, net.x[:batch], lambda: net.spec, device) for batch in batches]


def stack(depth: int, shape: tuple[int, int, int, int], device: Host) -> Case:
    """(max_pool 3x3, batch_norm, relu) ``depth`` times, images channels-last."""
    made = Stack(depth, shape)
    return Case(made.name, made.module, made.x, lambda: made.spec, device, copies=-(-depth // BLOCKS))


def recurrent(point: Point, batches: Sequence[int], device: Host) -> list[Case]:
    """``[T, N, H]`` through an LSTM or GRU, a case for each batch size; its outputs are the answer."""
    layer = Layer(point, max(batches))
    x = [np.ascontiguousarray(layer.x[:, :batch]) for batch in batches]
    return [Case(point.name, layer.module, each, lambda: layer.spec, device, axis=1) for each in x]
