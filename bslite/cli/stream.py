"""``bslite stream``: how long one time step of a recurrent model takes, and how evenly."""

import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from bslite.arithmetic import Precision
from bslite.cli import options
from bslite.cli.progress import activity

PERCENTILES = (50, 90, 99)
WARM = 50  # steps before the clock runs


def stream(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file.", show_default=False)],
    steps: Annotated[int, typer.Option(min=1, help="Time steps to take, one call each.")] = 2000,
    batch: options.Batch = None,
    shape: options.InputShape = None,
    seed: options.Seed = 0,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, help="Threads to use. Default: all cores; one for small models.", show_default=False
        ),
    ] = None,
    precision: options.Precision = Precision.FLOAT32,
) -> None:
    """Feed a recurrent model step by step, its state carried along, and show percentiles of the latency."""
    from rich.console import Console

    from bslite.streaming import Session
    from bslite.streaming.session import zeros_held

    if shape and model.suffix.lower() != ".onnx":
        raise typer.BadParameter(f"--shape is for open sizes of ONNX files; {model} has none: --batch")
    spec = options.load_spec(model, shape)
    rng = np.random.default_rng(seed)
    with activity(f"Preparing {spec.name}"):
        session = Session(spec, batch=batch, threads=threads, held=zeros_held(spec, batch))
        inputs = [i.draw(rng, i.example) for i in session.step_inputs]
        for _ in range(WARM):
            session.step(inputs)
    session.reset()
    seconds = []
    for _ in range(steps):
        inputs = [i.draw(rng, i.example) for i in session.step_inputs]
        start = time.perf_counter()
        session.step(inputs)
        seconds.append(time.perf_counter() - start)
    out = Console(highlight=False)
    takes = ", ".join(f"{i.name} {list(i.example)}" for i in session.step_inputs)
    out.print(f"{spec.name}, {takes} per step, {steps} steps, {len(session.state)} states carried")
    figures = [*(f"p{p} {1e6 * np.percentile(seconds, p):.1f} µs" for p in PERCENTILES)]
    out.print(
        "  ".join([*figures, f"max {1e6 * max(seconds):.1f} µs", f"mean {1e6 * np.mean(seconds):.1f} µs"])
    )
