"""``bslite calibrate``: measure this machine once, for the planner."""

from pathlib import Path
from typing import Annotated

import typer

from bslite.cli.progress import activity
from bslite.errors import EngineError, writing


def calibrate(
    forget: Annotated[bool, typer.Option("--forget", help="Delete what was measured before.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Measure and print, keep nothing.")] = False,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json",
            help="Also write the machine as JSON, as Machine.from_json reads it.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Measure bandwidth of the cache levels, clock and multiply-adds, and keep them for the planner.

    Takes some seconds, on all cores; leave the machine alone meanwhile. Plans made from then on consult what
    was measured. Results are the same bits with a calibration and without, but for precision "bfloat16": dot
    products of bfloat16 (AVX512_BF16) compute it if they prove faster.
    """
    from rich.console import Console
    from rich.table import Table

    from bslite.engines.cpu import calibrate as measuring
    from bslite.engines.cpu import calibration
    from bslite.engines.cpu.description import described
    from bslite.machine import LEVELS

    if forget:
        typer.echo("forgotten" if calibration.forget() else "nothing was kept of this machine")
        return
    with activity("Measuring this machine"):
        found = measuring.measure()
    table = Table(box=None, padding=(0, 2))
    one, most = found.one, found.all
    for title in (
        "GB/s",
        "read, 1 thread",
        f"{found.cores} threads",
        "copy, 1 thread",
        f"{found.cores} threads",
    ):
        table.add_column(title, justify="left" if title == "GB/s" else "right")
    for level in LEVELS:
        rates = (one.read(level), most.read(level), one.copy(level), most.copy(level))
        table.add_row(level if level == "memory" else level.upper(), *(f"{rate / 1e9:.1f}" for rate in rates))
    console = Console(highlight=False, soft_wrap=True)
    console.print(found.cpu)
    console.print(
        f"{found.lanes} lanes; clock of one core {one.clock / 1e9:.2f} GHz, of {found.cores} at once "
        f"{most.clock / 1e9:.2f}; multiply-adds {one.flops / 1e9:.0f} and {most.flops / 1e9:.0f} GFLOP/s"
    )
    if one.tiles:
        console.print(
            f"tiles of bfloat16 {one.tile_flops / 1e9:,.0f} and {most.tile_flops / 1e9:,.0f} GFLOP/s; at six "
            f"products for each of float32 {one.tile_flops / 6e9:,.0f} and {most.tile_flops / 6e9:,.0f}"
        )
    if one.dots:
        console.print(
            f"dot products of bfloat16 {one.dots / 1e9:,.0f} and {most.dots / 1e9:,.0f} GFLOP/s, "
            'for precision "bfloat16"'
        )
    console.print(table)
    if found.disturbed:
        raise EngineError(
            f"{found.cores} threads at once did not do much more than one: something else was running. "
            "Nothing is kept; leave the machine alone and try again"
        )
    if json_file:
        with writing(json_file):
            json_file.write_text(calibration.calibrated(described(found.cores), found).to_json())
    if not dry_run:
        console.print(f"kept in {calibration.save(found)}")
