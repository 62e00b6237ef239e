"""``bslite demo``: ResNet-50 on a picture, verified and timed. Needs no torch and no download."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bslite.cli import options
from bslite.cli.inputs import SAMPLE, load_image
from bslite.cli.progress import activity, steps
from bslite.cli.rivals import calls, time_table, torch_rival
from bslite.cli.timing import interleaved
from bslite.cli.top import top_table

ROUNDS = 7


def demo(
    picture: Annotated[
        Path, typer.Option("--input", "-i", help="Look at this picture instead.", show_default=False)
    ] = SAMPLE,
    seed: options.Seed = 0,
    threads: options.Threads = None,
) -> None:
    """ResNet-50 with seeded random weights on a sample picture: the answer, its proof, the time it took."""
    from bslite.api import run
    from bslite.verification import verify

    out = Console(highlight=False)
    with activity("Making ResNet-50"):
        spec = options.named_architecture("resnet50", None, seed)
        image = load_image(picture, (224, 224))
    out.print(f"[bold]{spec!r}[/bold] on {picture.name}", markup=True)

    with activity("Preparing the engine"):
        start = time.perf_counter()
        scores = run(spec, image, threads=threads)
        first = time.perf_counter() - start
    with activity("Running the NumPy reference"):
        start = time.perf_counter()
        expected = run(spec, image, backend="reference")
        reference_time = time.perf_counter() - start
    out.print(top_table({"bslite": scores[0], "NumPy reference": expected[0]}))
    out.print("The weights are random, so the classes mean nothing; that both computed the same does.\n")

    torch = torch_rival(spec, threads)
    with steps("Verifying", len(spec.nodes)) as advance:
        found = verify(spec, image, module=torch, threads=threads, on_layer=advance)
    [answer] = found.outputs
    out.print(f"Error of the scores against the reference in float64: bslite {answer.error:.1e}", end="")
    out.print(f", NumPy in float32 {answer.reference_error:.1e}", end="")
    out.print("" if answer.torch_error is None else f", torch {answer.torch_error:.1e}")
    out.print(found.summary() + "\n")

    rivals = calls(spec, [image], threads, torch)
    with steps("Timing", ROUNDS * len(rivals)) as advance:
        seconds = interleaved(rivals, ROUNDS, on_turn=advance)
    out.print(time_table({"NumPy reference": [reference_time], **seconds}))
    out.print(f"First answer of the engine, compiling or loading its kernels included: {first:.2f} s")
    if not found.passed:
        raise typer.Exit(1)
