"""``bslite verify``: the engine against the reference, layer by layer; exit code 1 where they differ."""

from typing import Annotated

import typer

from bslite.arithmetic import Precision
from bslite.cli import options
from bslite.cli.inputs import make_inputs
from bslite.cli.progress import activity, steps
from bslite.cli.rivals import torch_rival
from bslite.spec import ModelSpec


def verify(
    model: options.ModelFile = None,
    arch: options.Arch = None,
    weights: options.Weights = None,
    input_file: options.InputFile = None,
    shape: options.InputShape = None,
    batch: options.Batch = None,
    seed: options.Seed = 0,
    threads: options.Threads = None,
    precision: options.Precision = Precision.FLOAT32,
    backend: options.Backend = options.Engine.cpu,
    torch: Annotated[
        bool, typer.Option(help="Hold the outputs to torch's own error, where torch is installed.")
    ] = True,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the verdict, no table.")] = False,
    json_file: options.JsonFile = None,
) -> None:
    """Check every layer and the outputs against the float64 reference. Exit code 1 if one is out of bound."""
    from bslite.api import run, settled
    from bslite.verification import verify as check

    spec = options.load_model(model, arch, weights, seed)
    inputs = make_inputs(spec, input_file, shape, batch, seed)
    if (whole := settled(spec, inputs)) is not None:
        spec, inputs = whole
        spec.infer_shapes([x.shape for x in inputs])
    module = torch_rival(spec, threads) if torch and isinstance(spec, ModelSpec) else None
    with activity(f"Preparing {spec.name}"):
        run(spec, inputs, threads=threads, backend=backend.value)
    with steps("Verifying", len(spec.nodes) if isinstance(spec, ModelSpec) else 0) as advance:
        found = check(spec, inputs, module=module, threads=threads, on_layer=advance, backend=backend.value)
    print(found.summary() if quiet else found)
    options.write_figures(json_file, found.as_dict())
    if not found.passed:
        raise typer.Exit(1)
