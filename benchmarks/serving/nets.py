"""The networks served: as ONNX files with an open batch, and rows to ask them with."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from bslite.spec import Array

ROWS = 8  # different requests


def _mobilenet() -> tuple[Any, tuple[int, ...]]:
    from benchmarks.training_steps import made

    return made("mobilenet_v2"), (3, 224, 224)


def _perceptron() -> tuple[Any, tuple[int, ...]]:
    import torch

    torch.manual_seed(0)
    layers = [torch.nn.Linear(512, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 4096), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(4096, 100)), (512,)


#: A network of convolutions, whose rows hardly help each other, and one whose weights (77 MB) are read once a
#: run.
NETS = {"mobilenet_v2": _mobilenet, "perceptron": _perceptron}


def exported(name: str, folder: Path) -> Path:
    """The network as an ONNX file: ``x`` [n, ...] -> ``y`` [n, ...]."""
    import torch

    module, shape = NETS[name]()
    path = folder / f"{name}.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(), (torch.zeros(2, *shape),), str(path), dynamo=False, opset_version=17,
            input_names=["x"], output_names=["y"], dynamic_axes={"x": {0: "n"}, "y": {0: "n"}},
        )  # fmt: skip
    return path


def rows(name: str) -> list[Array]:
    """Different inputs of one row."""
    shape = NETS[name]()[1]
    return [np.random.default_rng(k).standard_normal((1, *shape), np.float32) for k in range(ROWS)]
