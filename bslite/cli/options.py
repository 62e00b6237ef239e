"""The options several commands share, and the model they add up to."""

import json
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from bslite import arithmetic
from bslite.cli.sizes import MOST_SIZE
from bslite.errors import writing
from bslite.spec import ModelSpec
from bslite.spec.open import OpenModel

ModelFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="MODEL", help="A model file: as written by spec.save(), or .onnx.", show_default=False
    ),
]
Arch = Annotated[
    str | None,
    typer.Option(help="A named architecture instead of a file, e.g. resnet50.", show_default=False),
]
Weights = Annotated[
    Path | None,
    typer.Option(
        help="state_dict for --arch (.safetensors, .pth, .pt). Without it: seeded random weights.",
        show_default=False,
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of random weights and random input.")]
InputFile = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        help="An image (resized, cropped, normalised as for ImageNet), a .npy, or a number for all elements "
        "(a text, where the model takes strings); of several inputs NAME=VALUE, once for each. Without it: "
        "random.",
        show_default=False,
    ),
]
InputShape = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        help="Input shape, e.g. 1,3,224,224 or 1x3x224x224; of several inputs NAME=SHAPE, once for each. "
        "Default: the model's own; open sizes of ONNX files are tried.",
        show_default=False,
    ),
]
Batch = Annotated[int | None, typer.Option(min=1, max=MOST_SIZE, help="Batch size.", show_default=False)]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Threads to use. Default: all cores.", show_default=False)
]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the figures here.", show_default=False)]


class Engine(str, Enum):
    """Which engine a command looks at."""

    cpu = "cpu"
    cuda = "cuda"


def _within(context: typer.Context, given: arithmetic.Precision) -> arithmetic.Precision:
    """The whole command runs with that precision."""
    context.with_resource(arithmetic.precision(given))
    return given


Precision = Annotated[
    arithmetic.Precision,
    typer.Option(
        metavar="WORD",
        callback=_within,
        help="Least accuracy of products: float32, ieee, bfloat16_3x, bfloat16. The fastest is taken.",
    ),
]
Backend = Annotated[Engine, typer.Option(help="The engine of the CPU, or of NVIDIA GPUs.")]


def write_figures(path: Path | None, figures: dict[str, Any]) -> None:
    """Write what a command found, if ``--json`` names a file. Raises FileError."""
    if path is not None:
        with writing(path):
            path.write_text(json.dumps(figures, indent=1) + "\n")


def load_model(
    path: Path | None, arch: str | None, weights: Path | None = None, seed: int = 0
) -> ModelSpec | OpenModel:
    """The model the options name: a file, or an architecture with given or seeded weights."""
    if (path is None) == (arch is None):
        raise typer.BadParameter("give either a MODEL file or --arch NAME")
    if weights is not None and arch is None:
        raise typer.BadParameter("--weights goes with --arch")
    if arch is not None:
        return named_architecture(arch, weights, seed)
    assert path is not None
    if path.suffix.lower() == ".onnx":
        from bslite.onnx.model import OnnxModel

        return OnnxModel(path)
    from bslite.spec import load

    return load(path)


def named_architecture(arch: str, weights: Path | None = None, seed: int = 0) -> ModelSpec:
    """An architecture with given or seeded weights."""
    from bslite.frontends.weights.architectures.random_weights import random_state_dict
    from bslite.frontends.weights.state_dict import from_state_dict

    return from_state_dict(arch, random_state_dict(arch, seed) if weights is None else weights)


def load_spec(path: Path, shapes: Sequence[str] | None = None) -> ModelSpec:
    """The model in a file as one ModelSpec; ``shapes`` are examples of open sizes that cannot stay free."""
    if path.suffix.lower() != ".onnx":
        from bslite.spec import load

        return load(path)
    from bslite.cli.inputs import named
    from bslite.cli.sizes import parse_shape
    from bslite.frontends.onnx.read import input_names
    from bslite.onnx.load import from_onnx

    given = named(shapes, input_names(path), "--shape")
    spec = from_onnx(path, shapes={name: parse_shape(text) for name, text in given.items()})
    if not isinstance(spec, ModelSpec):
        raise typer.BadParameter(f"{path} leaves sizes open that must be known: give --shape")
    return spec


def describe_weights(arch: str | None, weights: Path | None, seed: int) -> str:
    """A word of warning where the weights are made up."""
    return f", random weights of seed {seed}" if arch and weights is None else ""
