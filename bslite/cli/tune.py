"""``bslite tune``: threads, requests at a time and batch of a model for a number of cores."""

import enum
from typing import Annotated

import typer

from bslite.cli import options
from bslite.cli.progress import notes


class Target(str, enum.Enum):
    """What is to be best."""

    latency = "latency"
    throughput = "throughput"


def tune(
    model: options.ModelFile = None,
    arch: options.Arch = None,
    weights: options.Weights = None,
    seed: options.Seed = 0,
    target: Annotated[
        Target, typer.Option(help="The least time of one request, or the most images per second.")
    ] = Target.latency,
    cores: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Physical cores. Default: those this process may use. More of them are simulated.",
            show_default=False,
        ),
    ] = None,
    batch: Annotated[
        list[int] | None,
        typer.Option(
            min=1, help="Batch sizes to look at, once for each. Default: 1, 4 and 16.", show_default=False
        ),
    ] = None,
    measure: Annotated[
        bool | None,
        typer.Option(
            "--measure/--no-measure",
            help="Run the best settings, or go by price. Default: run them where the cores are here.",
            show_default=False,
        ),
    ] = None,
    json_file: options.JsonFile = None,
) -> None:
    """Choose threads, streams and batch by the width of the graph and by prices; compare with other rules."""
    from bslite.parallelism import tune as advise

    loaded = options.load_model(model, arch, weights, seed)
    with notes.status("Tuning ...") as status:
        advice = advise(
            loaded,
            target.value,
            cores=cores,
            batches=batch,
            measure=measure,
            progress=lambda what: status.update(f"Tuning: {what}"),
        )
    typer.echo(str(advice))
    options.write_figures(json_file, advice.as_dict())
