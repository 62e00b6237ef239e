"""``bslite explain``: where the time of one model goes, layer by layer."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bslite.arithmetic import Precision
from bslite.cli import options
from bslite.cli.inputs import make_inputs
from bslite.cli.progress import activity
from bslite.errors import EngineError

if TYPE_CHECKING:
    from bslite.explore.gpu import GpuMachine


def explain(
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
    machine: Annotated[
        str | None,
        typer.Option(
            help="With --backend cuda: the GPU to plan for, a JSON file or an example: h200. Without it: the "
            "GPU that is here, else an H200.",
            show_default=False,
        ),
    ] = None,
    runs: Annotated[int, typer.Option(min=2, help="Traced runs to take the medians of.")] = 15,
    trace_file: Annotated[
        Path | None,
        typer.Option("--trace", help="Write one run as a trace for Perfetto here.", show_default=False),
    ] = None,
    html_file: Annotated[
        Path | None,
        typer.Option("--html", help="Write a report with plots, one file, here.", show_default=False),
    ] = None,
    json_file: options.JsonFile = None,
) -> None:
    """For every layer: kernel, tile, time, rates, distance to the roofline, what is fused into it and why.

    With --backend cuda: the plan of the GPU engine, launch by launch, with its prices; nothing runs.
    """
    from bslite.api import run
    from bslite.explanation import explain as look
    from bslite.explanation.views.page import need_plotly

    on_gpu = backend is options.Engine.cuda
    if on_gpu and (trace_file or html_file):
        raise typer.BadParameter("--trace and --html show runs on the CPU; not with --backend cuda")
    if machine is not None and not on_gpu:
        raise typer.BadParameter("--machine goes with --backend cuda")
    if html_file is not None:
        need_plotly()
    spec = options.load_model(model, arch, weights, seed)
    inputs = make_inputs(spec, input_file, shape, batch, seed)
    if on_gpu:
        found = look(spec, inputs, backend="cuda", machine=_gpu(machine))
    else:
        with activity(f"Preparing {spec.name}"):
            run(spec, inputs, threads=threads)
        with activity(f"Measuring the machine and {runs} runs"):
            found = look(spec, inputs, threads=threads, runs=runs)
    print(found)
    if trace_file is not None:
        found.save_trace(trace_file)
    if html_file is not None:
        found.save_html(html_file)
    options.write_figures(json_file, found.as_dict())


def _gpu(name: str | None) -> "GpuMachine | None":
    """The GPU that ``--machine`` names."""
    from bslite.explore.gpu import GpuMachine
    from bslite.explore.machine_file import find_machine, kind_of

    if name is None:
        return None
    found = find_machine(name)
    if not isinstance(found, GpuMachine):
        raise EngineError(f"--machine takes a GPU, {name} is a {kind_of(found)}")
    return found
