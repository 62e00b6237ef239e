"""``bslite try``: one screen on what bslite makes of a model; the first thing to do with one's own."""

import time
from typing import Annotated

import typer

from bslite.arithmetic import Precision
from bslite.cli import options
from bslite.cli.inputs import make_inputs
from bslite.cli.progress import activity
from bslite.errors import UnsupportedError
from bslite.spec.open import behind


def try_model(
    model: options.ModelFile = None,
    arch: options.Arch = None,
    weights: options.Weights = None,
    input_file: options.InputFile = None,
    shape: options.InputShape = None,
    batch: options.Batch = None,
    seed: options.Seed = 0,
    threads: options.Threads = None,
    precision: options.Precision = Precision.FLOAT32,
    peers: Annotated[
        bool, typer.Option(help="Time torch, onnxruntime and openvino, too, where installed.")
    ] = True,
    json_file: options.JsonFile = None,
) -> None:
    """Try a model: does it load, is it right, how fast is it beside what is installed. One screen.

    Exit code 1 if an error is out of bound or bits differ where they must not, 2 if the model does not load.
    """
    from bslite.cli.trial.screen import Source, lacking, screen
    from bslite.cli.trial.trying import tried
    from bslite.compiled import compile
    from bslite.engines.cpu.threads import default_threads

    title = (model.name if model else str(arch)) + options.describe_weights(arch, weights, seed)
    onnx = model if model and model.suffix.lower() == ".onnx" else None
    try:
        with activity("Loading"):
            start = time.perf_counter()
            loaded = options.load_model(model, arch, weights, seed)
            made = compile(loaded, threads=threads or default_threads(), precision=precision.value)
            inputs = make_inputs(behind(made), input_file, shape, batch, seed)
            loading = time.perf_counter() - start
        found = tried(title, onnx, made, inputs, loading, peers)
    except UnsupportedError as e:
        if onnx is None or "\n" not in str(e):  # it lists no operators, and says itself what to do
            raise
        typer.echo(lacking(title, str(e), str(onnx)))
        options.write_figures(json_file, {"model": title, "loads": False, "lacks": str(e).splitlines()})
        raise typer.Exit(2) from None
    source = Source.file(model) if model else Source.architecture(str(arch), weights)
    typer.echo(screen(found, source))
    options.write_figures(json_file, found.as_dict())
    if not found.passed:
        raise typer.Exit(1)
