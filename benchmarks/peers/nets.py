"""The networks compared: torchvision's own definitions with seeded weights, in every form the rivals take."""

from __future__ import annotations

import copy
import functools
import importlib.util
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from bslite.spec import Array, ModelSpec

NETS = (
    "alexnet",
    "vgg16",
    "resnet18",
    "resnet50",
    "squeezenet1_1",
    "densenet121",
    "densenet201",
    "inception_v3",
    "googlenet",
    "mobilenet_v2",
    "efficientnet_b0",
)
SIDES = {"inception_v3": 299}


class Net:
    """One network at one batch size: torch module, input, bslite model, ONNX file, and the true answer."""

    def __init__(self, name: str, batch: int, seed: int, folder: Path) -> None:
        import torch

        self.name, self.batch, self.folder = name, batch, folder
        self.module = module(name, seed)
        side = SIDES.get(name, 224)
        rng = np.random.default_rng(seed)
        self.x: Array = rng.standard_normal((batch, 3, side, side), np.float32)
        with torch.no_grad():
            double = copy.deepcopy(self.module).double()
            self.exact: Array = double(torch.from_numpy(self.x).double()).numpy()
            del double

    @functools.cached_property
    def spec(self) -> ModelSpec:
        """The model in bslite: by name where it knows the architecture, else captured from the module."""
        import torch

        from bslite.frontends import architectures
        from bslite.frontends.state_dict import from_state_dict

        if self.name in architectures.NAMES:
            return from_state_dict(self.name, self.module.state_dict())
        from bslite.frontends import from_torch

        captured: ModelSpec = from_torch(self.module, (torch.from_numpy(self.x),))
        return captured

    @functools.cached_property
    def onnx(self) -> Path:
        """Path of the exported model, of this batch size."""
        import torch

        path = self.folder / f"{self.name}-{self.batch}.onnx"
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                self.module, (torch.from_numpy(self.x),), str(path), dynamo=False, opset_version=17
            )
        return path

    def error(self, answer: Array) -> float:
        """Relative L2 distance of an answer from the true one; infinite for another shape."""
        if answer.shape != self.exact.shape:
            return float("inf")
        return float(np.linalg.norm(answer - self.exact) / np.linalg.norm(self.exact))


def module(name: str, seed: int) -> Any:
    """torchvision's module in eval mode; the tests' helper is the one place that knows how to import it."""
    return _helper().model(name, seed)


@functools.cache
def _helper() -> Any:
    path = Path(__file__).parents[2] / "tests" / "torchvision_models.py"
    found = importlib.util.spec_from_file_location("torchvision_models", path)
    assert found is not None
    assert found.loader is not None
    loaded = importlib.util.module_from_spec(found)
    found.loader.exec_module(loaded)
    return loaded
