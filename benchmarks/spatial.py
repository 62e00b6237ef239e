"""``python -m benchmarks.spatial``: one loop nest against kernel by kernel on a simulated spatial
accelerator.

DeepBench's recurrent problems for servers, on the machines of ``--machines`` (examples of bslite, or files):
the claim of *Serving Recurrent Neural Networks Efficiently with a Spatial Accelerator* (arXiv 1909.13654).
Each way of running a layer gets the best point of its own space by predicted time, and is then executed cycle
by cycle; all must give the same numbers. Nothing is timed here: the cycles are the simulator's, and the same
on every host.
"""

import argparse
import sys
from typing import Any

from benchmarks import output
from benchmarks.tables import geometric_mean, ratio, share, table
from bslite.explore import Recurrent, deepbench
from bslite.explore.machine_file import find_machine
from bslite.explore.spatial import SpatialMachine
from bslite.explore.spatial.compare import FEW, KERNELS, LOOP, WAYS, compare, library_tile
from bslite.explore.spatial.kernels import KernelByKernel

LIBRARY = "one tile"
OTHERS = (KERNELS, LIBRARY, FEW)
DEFAULT = ("plasticine-large", "plasticine-wide", "plasticine")
EXPLAINED = (
    "Simulated cycles; each way at the best point of its own space. `kernels`: a matrix-vector kernel per "
    "gate, an element-wise kernel per operation, the tile chosen for each problem; `one tile`: the same "
    "with one tile for all problems; `few kernels`: gates together where the cell allows it, all "
    "element-wise operations in one kernel. Figures are times the loop's. `free launches`: `kernels` if "
    "starting a kernel cost nothing but the way of the signal. `busy`: all multipliers of the grid doing "
    "something useful. `predicted`: the analytic price over the simulated cycles, the farthest from 1 of all "
    "ways. A case that repeats in others with fewer steps is given once, with its most steps."
)


def case(
    problem: Recurrent, name: str, machine: SpatialMachine, tile: tuple[int, int] | None
) -> dict[str, Any]:
    """One problem on one machine, every way that fits it."""
    found = compare(problem, machine, {**WAYS, LIBRARY: KernelByKernel(tile=tile)})
    ways: dict[str, Any] = {}
    for way, outcome in found.items():
        run = outcome.run
        ways[way] = {
            "point": outcome.found.best.point.as_dict(),
            "cycles": run.cycles,
            "predicted": outcome.found.best.seconds * machine.clock,
            "simulated_steps": run.simulated,
            "utilisation": run.utilisation,
            "waits": {why: count / run.cycles for why, count in run.stalls.items()},
            "on_chip": outcome.found.best.notes["weights on chip"],
            "kernels_per_step": outcome.found.best.notes.get("kernels per step", 0),
        }
    first = ways[LOOP]["cycles"]
    free = {
        way: (w["cycles"] - machine.launch_cycles * w["kernels_per_step"] * problem.steps) / first
        for way, w in ways.items()
    }
    return {
        "machine": name,
        "kind": problem.kind,
        "hidden": problem.hidden,
        "steps": problem.steps,
        "batch": problem.batch,
        "weights": problem.weights,
        "ways": ways,
        "over_loop": {way: w["cycles"] / first for way, w in ways.items()},
        "over_loop_free_launches": free,
    }


def markdown(results: list[dict[str, Any]], tiles: dict[str, Any], header: dict[str, Any]) -> str:
    """A table for each machine."""
    parts = []
    for name in dict.fromkeys(r["machine"] for r in results):
        mine = [r for r in results if r["machine"] == name]
        machine = tiles[name]["machine"]
        tile = " x ".join(map(str, tiles[name]["tile"]))
        parts.append(
            f"**{name}**: {machine['rows']} x {machine['columns']} cells of a PCU with "
            f"{machine['lanes']} lanes and {machine['pmus_per_pcu']} PMUs of "
            f"{machine['pmu_bytes'] >> 10} KB, {machine['clock'] / 1e9:g} GHz; the library's one tile is "
            f"{tile} PCUs"
        )
        parts.append(_table(mine))
    return output.document(*parts, EXPLAINED, f"Commit {header['commit']}.")


def as_dict(results: list[dict[str, Any]], tiles: dict[str, Any], header: dict[str, Any]) -> dict[str, Any]:
    """Everything, ready for JSON."""
    return {**header, "tiles": tiles, "results": results}


def _table(results: list[dict[str, Any]]) -> str:
    head = ["problem", "batch", "loop, µs per step", *OTHERS, "free launches", "busy, loop", "kernels"]
    head += ["on chip", "predicted", "hu ru rv gp"]
    rows = []
    for r in results:
        ways, loop = r["ways"], r["ways"][LOOP]
        clock = r["clock"]
        worst = max((w["predicted"] / w["cycles"] for w in ways.values()), key=lambda p: abs(p - 1))
        rows.append(
            [
                f"{r['kind']} {r['hidden']} x {r['steps']}",
                str(r["batch"]),
                f"{1e6 * loop['cycles'] / clock / r['steps']:.3f}",
                *(ratio(r["over_loop"].get(way)) for way in OTHERS),
                ratio(r["over_loop_free_launches"][KERNELS]),
                *(share(ways[way]["utilisation"]["all multipliers, useful"]) for way in (LOOP, KERNELS)),
                share(loop["on_chip"]),
                f"{worst:.3f}",
                " ".join(str(v) for v in loop["point"].values()),
            ]
        )
    means = [ratio(geometric_mean([r["over_loop"].get(way) for r in results])) for way in OTHERS]
    free = geometric_mean([r["over_loop_free_launches"][KERNELS] for r in results])
    rows.append(["mean", "", "", *means, ratio(free)])
    return table(head, rows)


def main(arguments: list[str] | None = None) -> int:
    """Search, simulate, compare."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spatial", description=__doc__)
    parser.add_argument("--machines", nargs="+", default=list(DEFAULT))
    parser.add_argument("--batch", nargs="+", type=int, default=list(deepbench.BATCHES))
    parser.add_argument("--hidden", nargs="+", type=int, help="only problems of these sizes")
    output.add_options(parser)
    options = parser.parse_args(arguments)
    run = output.Run("spatial", options, as_dict, markdown, limits={})
    problems = [
        p for p in deepbench.distinct(tuple(options.batch)) if p.hidden in (options.hidden or [p.hidden])
    ]
    problems.sort(key=lambda p: p.batch)  # whoever stops the run has whole batches
    if not problems:
        parser.error(f"--hidden: none of {options.hidden} is a size of DeepBench's")
    for name in options.machines:
        machine = find_machine(name)
        if not isinstance(machine, SpatialMachine):
            parser.error(f"--machines: {name} is not a spatial machine")
        tile = library_tile([p for p in problems if p.batch == problems[0].batch], machine)
        run.limits[name] = {"tile": tile, "machine": machine.as_dict()}
        for problem in problems:
            found = case(problem, name, machine, tile)
            each = ", ".join(f"{way} {r:.2f}" for way, r in found["over_loop"].items())
            said = f"{name}, {problem}: {found['ways'][LOOP]['cycles']:,} cycles; {each}"
            run.add({**found, "clock": machine.clock}, said)
    run.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
