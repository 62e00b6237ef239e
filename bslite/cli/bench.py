"""``bslite bench``: how fast one model runs, in turns with its rivals."""

from typing import Annotated

import typer

from bslite.arithmetic import Precision
from bslite.cli import options
from bslite.cli.inputs import make_inputs
from bslite.cli.progress import activity, steps
from bslite.spec import ModelSpec


def bench(
    model: options.ModelFile = None,
    arch: options.Arch = None,
    weights: options.Weights = None,
    input_file: options.InputFile = None,
    shape: options.InputShape = None,
    batch: options.Batch = None,
    seed: options.Seed = 0,
    threads: options.Threads = None,
    precision: options.Precision = Precision.FLOAT32,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; in each, every rival has its turn.")] = 10,
    torch: Annotated[
        bool, typer.Option(help="Time torch, and for ONNX files onnxruntime, too, where installed.")
    ] = True,
) -> None:
    """Time the engine, the same kernels layer by layer, torch and onnxruntime if present, in turns."""
    from rich.console import Console

    from bslite.api import run, settled
    from bslite.cli.rivals import calls, onnxruntime_rival, time_table, torch_rival
    from bslite.cli.timing import interleaved

    spec = options.load_model(model, arch, weights, seed)
    inputs = make_inputs(spec, input_file, shape, batch, seed)
    with activity(f"Preparing {spec.name}"):
        run(spec, inputs, threads=threads)
    peers = onnxruntime_rival(model, spec, inputs, threads) if torch else {}
    spec, inputs = settled(spec, inputs) or (spec, inputs)
    peer = torch_rival(spec, threads) if torch and isinstance(spec, ModelSpec) else None
    rivals = {**calls(spec, inputs, threads, peer), **peers}
    with steps("Timing", rounds * len(rivals)) as advance:
        seconds = interleaved(rivals, rounds, on_turn=advance)
    out = Console(highlight=False)
    takes = ", ".join(str(list(x.shape)) for x in inputs)
    out.print(f"{spec.name}{options.describe_weights(arch, weights, seed)}, input {takes}, {rounds} rounds")
    out.print(time_table(seconds))
