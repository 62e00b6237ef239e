"""``bslite explore``: loop parameters of recurrent layers on a machine, searched, priced and simulated."""

import enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bslite.cli import options
from bslite.cli.progress import notes
from bslite.errors import EngineError

if TYPE_CHECKING:
    from bslite.explore import Found, Recurrent
    from bslite.explore.machine_file import AnyMachine
    from bslite.explore.spatial import SpatialMachine
    from bslite.explore.spatial.compare import Outcome


SMALL = 5e-4  # a share of the time that is not worth a word


class Kind(str, enum.Enum):
    """Cells there are."""

    lstm = "lstm"
    gru = "gru"
    rnn = "rnn"


def explore(
    kind: Annotated[Kind, typer.Argument(help="The cell.", show_default=False)],
    hidden: Annotated[int, typer.Option(min=1, help="Hidden units.")] = 1024,
    steps: Annotated[int, typer.Option(min=1, help="Time steps.")] = 25,
    batch: Annotated[int, typer.Option(min=1, help="Sequences side by side.")] = 1,
    inputs: Annotated[
        int | None, typer.Option(min=1, help="Inputs. Default: as many as hidden units.", show_default=False)
    ] = None,
    layers: Annotated[int, typer.Option(min=1, help="Layers, one on the other.")] = 1,
    machine: Annotated[
        str | None,
        typer.Option(
            help="A machine's JSON file, or an example: plasticine, plasticine-large, plasticine-wide, h200, "
            "cpu-48-cores. Without it: this CPU.",
            show_default=False,
        ),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Points to print, the best first.")] = 5,
    simulate: Annotated[
        bool,
        typer.Option(
            "--simulate",
            help="Spatial machines: execute the best point cycle by cycle, and the layer kernel by kernel.",
        ),
    ] = False,
    json_file: options.JsonFile = None,
) -> None:
    """Search loop parameters of recurrent layers on a model of a machine; print space and best points."""
    from rich.console import Console

    from bslite.explore import Recurrent, search
    from bslite.explore.machine_file import explorer_of, kind_of
    from bslite.explore.spatial import SpatialMachine

    problem = Recurrent(kind.value, hidden, inputs or hidden, steps, batch, layers)
    target = _machine(machine)
    if simulate and not isinstance(target, SpatialMachine):
        raise EngineError(f"--simulate takes a spatial machine, this one is a {kind_of(target)}")
    explorer = explorer_of(target)
    console = Console(highlight=False, soft_wrap=True)
    with notes.status("Searching ..."):
        found = search(explorer, problem, target)
    console.print(f"{problem}, on {_name(machine, target)}\n", markup=False)
    console.print(f"{found.space}\n", markup=False)
    _print_points(console, found, top)
    figures: dict[str, Any] = {"problem": str(problem), "machine": target.as_dict(), **found.as_dict(top)}
    if isinstance(target, SpatialMachine):
        _print_mapping(console, found, target)
        if simulate:
            figures["simulated"] = _simulate(console, problem, target)
    options.write_figures(json_file, figures)


def _machine(name: str | None) -> "AnyMachine":
    """The one asked for, or this CPU with what was measured of it."""
    from bslite.explore.machine_file import find_machine

    if name is not None:
        return find_machine(name)
    from bslite.engines.cpu.detect import detect
    from bslite.engines.cpu.threads import default_threads

    return detect(default_threads())


def _name(name: str | None, machine: "AnyMachine") -> str:
    from bslite.explore.machine_file import kind_of

    return "this CPU" if name is None else f"{name} ({kind_of(machine)})"


def duration(seconds: float) -> str:
    """Seconds in a fitting unit, three digits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}" if seconds < 1000 * size else f"{seconds / size:.0f} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _print_points(console: Any, found: "Found", top: int) -> None:
    """The best points: axes, time, where it goes."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    names = [axis.name for axis in found.space.axes]
    for name in ("", *names, "predicted", "a step"):
        table.add_column(name, justify="right", no_wrap=True)
    lines = []
    for rank, estimate in enumerate(found.ranked[:top], 1):
        shares = [
            f"{100 * part.seconds / estimate.seconds:.1f} % {part.name}"
            for part in estimate.parts
            if not part.hidden and part.seconds > SMALL * estimate.seconds
        ]
        table.add_row(
            str(rank),
            *(str(estimate.point[name]) for name in names),
            duration(estimate.seconds),
            duration(estimate.seconds / found.problem.steps),
        )
        lines.append(f"{rank}: {', '.join(shares)}")
    console.print(table)
    console.print()
    for line in lines:
        console.print(line, markup=False)
    ruled_out = sum(found.ruled_out.values())
    console.print(f"\n{len(found.ranked)} points fit, {ruled_out} do not:", markup=False)
    for meaning, count in found.ruled_out.items():
        console.print(f"  {count} break: {meaning}", markup=False)
    for name, value in found.best.notes.items():
        console.print(f"{name} at the best point: {_figure(value)}", markup=False)


def _figure(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if value == int(value) else f"{value:,.4g}"


def _print_mapping(console: Any, found: "Found", machine: "SpatialMachine") -> None:
    """How the best point's loop lies on the grid."""
    from bslite.explore.spatial import loop

    console.print()
    for line in loop.mappings(found.problem, machine, found.best.point)[0].describe():
        console.print(f"- {line}", markup=False)


def _simulate(console: Any, problem: "Recurrent", machine: "SpatialMachine") -> dict[str, Any]:
    """The best point of each way to run it, executed; latency and utilisation side by side."""
    from bslite.explore.spatial.compare import compare

    with notes.status("Simulating ..."):
        outcomes = compare(problem, machine)
    console.print()
    _print_outcomes(console, outcomes)
    run = next(iter(outcomes.values())).run
    if run.simulated < run.steps:
        console.print(
            f"\n{run.simulated} of {run.steps} steps executed: the machine was in the same state at the "
            "start of the last two, so the others take the same cycles.",
            markup=False,
        )
    return {way: outcome.as_dict() for way, outcome in outcomes.items()}


def _print_outcomes(console: Any, outcomes: "dict[str, Outcome]") -> None:
    """A column for each way."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("simulated", no_wrap=True)
    for way in outcomes:
        table.add_column(way, justify="right", no_wrap=True)
    runs = [outcome.run for outcome in outcomes.values()]
    predicted = [outcome.found.best.seconds for outcome in outcomes.values()]
    table.add_row("latency", *(duration(run.seconds) for run in runs))
    table.add_row("over the loop's", *(f"{run.seconds / runs[0].seconds:.2f}" for run in runs))
    table.add_row("cycles", *(f"{run.cycles:,}" for run in runs))
    table.add_row(
        "predicted cycles", *(f"{p * run.machine.clock:,.0f}" for p, run in zip(predicted, runs, strict=True))
    )
    for unit in dict.fromkeys(name for run in runs for name in run.utilisation):
        shares = (run.utilisation.get(unit) for run in runs)
        table.add_row(f"busy: {unit}", *("-" if s is None else f"{100 * s:.1f} %" for s in shares))
    for why in dict.fromkeys(name for run in runs for name in run.stalls):
        table.add_row(f"wait: {why}", *(f"{100 * run.stalls.get(why, 0) / run.cycles:.1f} %" for run in runs))
    console.print(table)
    console.print()
    for way, outcome in outcomes.items():
        console.print(f"{way}: {outcome.found.best.point}", markup=False)
