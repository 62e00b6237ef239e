"""``bslite run``: one model, one input, the answer."""

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from bslite.arithmetic import Precision
from bslite.cli import options
from bslite.cli.inputs import make_inputs
from bslite.cli.progress import activity
from bslite.errors import UnsupportedError, writing

MOST_SHOWN = 120  # characters of what is no array of numbers


class Backend(str, Enum):
    """The backends of `bslite run`."""

    cpu = "cpu"
    cuda = "cuda"
    reference = "reference"


def run(
    model: options.ModelFile = None,
    arch: options.Arch = None,
    weights: options.Weights = None,
    input_file: options.InputFile = None,
    shape: options.InputShape = None,
    batch: options.Batch = None,
    seed: options.Seed = 0,
    threads: options.Threads = None,
    precision: options.Precision = Precision.FLOAT32,
    backend: Annotated[Backend, typer.Option(help="An engine, or the plain NumPy reference.")] = Backend.cpu,
    layerwise: Annotated[
        bool, typer.Option("--layerwise", help="Run the engine one layer at a time.")
    ] = False,
    save: Annotated[
        Path | None, typer.Option(help="Write the output here (.npy; several: .npz).", show_default=False)
    ] = None,
) -> None:
    """Run a model on a picture, an array or random numbers, and show what comes out."""
    from rich.console import Console

    from bslite.api import run as execute
    from bslite.cli.top import top_table

    spec = options.load_model(model, arch, weights, seed)
    inputs = make_inputs(spec, input_file, shape, batch, seed)
    with activity(f"Running {spec.name}"):
        made = execute(spec, inputs, backend=backend.value, layerwise=layerwise, threads=threads)
    names = [getattr(o, "name", o) for o in spec.outputs]
    outputs = {names[0]: made} if len(names) == 1 else dict(zip(names, made, strict=True))
    console = Console(highlight=False, markup=False)
    console.print(f"{spec.name}{options.describe_weights(arch, weights, seed)}")
    for name, value in outputs.items():
        if not isinstance(value, np.ndarray) or value.dtype == object or not value.size:
            console.print(f"{name}: {_told(value)}")
            continue
        low, high, mean = (f"{f(value):.4g}" for f in (np.min, np.max, np.mean))
        console.print(f"{name}: {list(value.shape)} {value.dtype}, from {low} to {high}, mean {mean}")
        if value.ndim == 2 and value.shape[1] >= 5 and np.isfinite(value).all():
            console.print(top_table({f"image {i}": row for i, row in enumerate(value[:4])}))
    if save is not None:
        _save(save, outputs)


def _told(value: Any) -> str:
    """Texts, sequences and maps, and arrays without elements, as much as goes on a line."""
    if value is None:
        return "nothing"
    what = f"{list(value.shape)} {value.dtype}" if hasattr(value, "shape") else f"{len(value)} values"
    shown = str(value.tolist() if hasattr(value, "tolist") else value)
    return f"{what}, {shown[:MOST_SHOWN]}{'...' if len(shown) > MOST_SHOWN else ''}"


def _save(path: Path, outputs: dict[str, Any]) -> None:
    if odd := [n for n, y in outputs.items() if not isinstance(y, np.ndarray) or y.dtype == object]:
        raise UnsupportedError(f"{path}: {', '.join(odd)}: only arrays of numbers can be saved")
    with writing(path), path.open("wb") as file:
        if len(outputs) == 1:
            np.save(file, next(iter(outputs.values())))
        else:
            np.savez(file, **outputs)
