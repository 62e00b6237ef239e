"""``python -m benchmarks.ladder``: the rate of every step, and its share of what the cores can do at most.

The steps take turns with a loop of nothing but multiply-adds out of registers, the peak; each is checked
against NumPy in float64 first. Each call is of another layer of the same size, of so many that their weights
do not stay in cache: as in a network, where each layer's come from memory.
"""

import argparse
import itertools
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import origin
from benchmarks.ladder import STEPS
from benchmarks.ladder.problem import Problem
from benchmarks.tables import table
from bslite.cli.timing import interleaved, seconds_of
from bslite.engines.cpu.description import described
from bslite.engines.cpu.threads import default_threads

TURN = 4e-3  # seconds one timed call takes at least
MOST_COPIES = 40


def idea(step: Any) -> str:
    """The first line of the step's file."""
    return str(step.__doc__).splitlines()[0].rstrip(".")


def measure(problem: Problem, threads: int, rounds: int) -> list[dict[str, Any]]:
    """Every step: name, idea, threads, seconds, flop/s and share of the peak; medians over the rounds."""
    from bslite.engines.cpu.job import start_threads
    from bslite.engines.cpu.stream import fma_turn

    calls: dict[str, Callable[[], object]] = {}
    work: dict[str, float] = {}  # flops of one timed call
    repeats = 1
    while min(seconds_of(fma_turn(1, repeats)[0]) for _ in range(3)) < TURN:
        repeats *= 2
    for n in sorted({1, threads}):
        start_threads(n)
        calls[f"peak {n}"], work[f"peak {n}"] = fma_turn(n, repeats)
    layers = [problem, *(replace(problem, seed=seed) for seed in range(2, 2 * copies(problem), 2))]
    for step in STEPS:
        prepared = [step.prepare(layer, threads) for layer in layers]
        error = problem.error(prepared[0]())
        assert error <= problem.bound, f"{step.__name__}: error {error:.1e}, bound {problem.bound:.1e}"
        calls[step.__name__], times = _repeated(prepared)
        work[step.__name__] = times * problem.flops
    seconds = interleaved(calls, rounds)
    found = []
    for step in STEPS:
        name, used = step.__name__, threads if step is STEPS[-1] else 1
        rates = [work[name] / s for s in seconds[name]]
        peaks = [work[f"peak {used}"] / s for s in seconds[f"peak {used}"]]
        found.append(
            {
                "step": name.rpartition(".")[2],
                "idea": idea(step),
                "threads": used,
                "flops": statistics.median(rates),
                "seconds": problem.flops / statistics.median(rates),
                "peak": statistics.median(peaks),
                "share": statistics.median(r / p for r, p in zip(rates, peaks, strict=True)),
            }
        )
    return found


def copies(problem: Problem) -> int:
    """Layers of this size whose weights together do not stay in any cache; within reason."""
    return max(1, min(MOST_COPIES, -(-2 * described(1).l3 // (4 * problem.depth * problem.filters))))


def _repeated(layers: list[Callable[[], object]]) -> tuple[Callable[[], object], int]:
    """A call that takes `TURN` at least, and how many of the given ones it is: each time the next ones."""
    times = max(1, int(TURN / min(seconds_of(layers[0]) for _ in range(3))))
    following = itertools.cycle(layers)

    def turn() -> None:
        for _ in range(times):
            next(following)()

    return turn, times


def markdown(found: list[dict[str, Any]], problem: Problem) -> str:
    """The table, and what it was measured on."""
    head, rows = ["step", "idea", "threads", "ms", "GFLOP/s", "of peak"], []
    for f in found:
        number = f["step"].removeprefix("step").partition("_")[0].lstrip("0")
        rate = [f"{1e3 * f['seconds']:.2f}", f"{f['flops'] / 1e9:.1f}", f"{100 * f['share']:.1f} %"]
        rows.append([number, f["idea"], str(f["threads"]), *rate])
    peaks = ", ".join(
        f"{t} thread(s) {p / 1e9:.0f} GFLOP/s" for t, p in {f["threads"]: f["peak"] for f in found}.items()
    )
    here, versions = origin.machine(), origin.versions()
    return (
        f"{table(head, rows, left=2)}\n\n"
        f"3x3 convolution of {problem.side} x {problem.side} pixels, {problem.channels} channels "
        f"to {problem.filters}, {problem.flops / 1e6:.0f} MFLOP, weights from memory. "
        f"Peak, in turns with the steps: {peaks}. "
        f"{here['cpu']}, {here['cores']} core(s) available, commit {origin.commit()}, "
        f"numba {versions['numba']}, llvmlite {versions['llvmlite']}.\n"
    )


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ladder", description=__doc__)
    parser.add_argument("--threads", type=int, default=default_threads(), help="of the last step")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--side", type=int, default=Problem.side, help="pixels of a line")
    parser.add_argument("--channels", type=int, default=Problem.channels)
    parser.add_argument("--filters", type=int, default=Problem.filters)
    parser.add_argument("--json", type=Path, help="write everything measured here")
    options = parser.parse_args(arguments)
    problem = Problem(options.side, options.channels, options.filters)
    found = measure(problem, options.threads, options.rounds)
    if options.json:
        data = {
            "commit": origin.commit(),
            "machine": origin.machine(),
            "versions": origin.versions(),
            "steps": found,
        }
        options.json.write_text(json.dumps(data, indent=1) + "\n")
    print(markdown(found, problem), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
