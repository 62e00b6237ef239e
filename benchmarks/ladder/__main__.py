"""``python -m benchmarks.ladder``: the rate of every step, and its share of what the cores can do at most.

The steps take turns with a loop of nothing but multiply-adds out of registers, the peak; each is checked
against NumPy in float64 first.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.ladder import STEPS
from benchmarks.ladder.problem import Problem
from benchmarks.peers import report
from bslite.cli.timing import interleaved
from bslite.engines.cpu.detect import default_threads

TURN = 4e-3  # seconds one timed call takes at least


def idea(step: Any) -> str:
    """The first line of the step's file."""
    return str(step.__doc__).splitlines()[0].rstrip(".")


def measure(problem: Problem, threads: int, rounds: int) -> list[dict[str, Any]]:
    """Every step: name, idea, threads, seconds, flop/s and share of the peak; medians over the rounds."""
    from bslite.engines.cpu.calibrate import fma_turn
    from bslite.engines.cpu.job import start_threads

    calls: dict[str, Callable[[], object]] = {}
    work: dict[str, float] = {}  # flops of one timed call
    for n in sorted({1, threads}):
        repeats = 1
        start_threads(n)
        while True:
            turn, work[f"peak {n}"] = fma_turn(n, repeats)
            if min(_seconds(turn) for _ in range(3)) >= TURN:
                break
            repeats *= 2
        calls[f"peak {n}"] = turn
    for step in STEPS:
        call = step.prepare(problem, threads)
        error = problem.error(call())
        assert error <= problem.bound, f"{step.__name__}: error {error:.1e}, bound {problem.bound:.1e}"
        calls[step.__name__], times = _repeated(call)
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


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _repeated(call: Callable[[], object]) -> tuple[Callable[[], object], int]:
    """A call that takes `TURN` at least, and how many of the given ones it is."""
    times = max(1, int(TURN / min(_seconds(call) for _ in range(3))))

    def turn() -> None:
        for _ in range(times):
            call()

    return turn, times


def markdown(found: list[dict[str, Any]], problem: Problem) -> str:
    """The table, and what it was measured on."""
    rows = [
        ["step", "idea", "threads", "ms", "GFLOP/s", "of peak"],
        ["---", "---", "---:", "---:", "---:", "---:"],
    ]
    for f in found:
        number = f["step"].removeprefix("step").partition("_")[0].lstrip("0")
        rate = [f"{1e3 * f['seconds']:.2f}", f"{f['flops'] / 1e9:.1f}", f"{100 * f['share']:.1f} %"]
        rows.append([number, f["idea"], str(f["threads"]), *rate])
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    peaks = ", ".join(
        f"{t} thread(s) {p / 1e9:.0f} GFLOP/s" for t, p in {f["threads"]: f["peak"] for f in found}.items()
    )
    here, versions = report.machine(), report.versions()
    return (
        f"{table}\n\n3x3 convolution of {problem.side} x {problem.side} pixels, {problem.channels} channels "
        f"to {problem.filters}, {problem.flops / 1e6:.0f} MFLOP. Peak, in turns with the steps: {peaks}. "
        f"{here['cpu']}, {here['cores']} core(s) available, commit {report.commit()}, "
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
            "commit": report.commit(),
            "machine": report.machine(),
            "versions": report.versions(),
            "steps": found,
        }
        options.json.write_text(json.dumps(data, indent=1) + "\n")
    print(markdown(found, problem), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
