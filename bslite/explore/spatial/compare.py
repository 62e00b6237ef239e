"""One loop nest against kernel by kernel, on the same spatial machine: each at its best point, each
simulated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bslite.errors import EngineError
from bslite.explore.problem import Recurrent
from bslite.explore.search import Explorer, Found, search
from bslite.explore.space import Point
from bslite.explore.spatial import kernels, loop
from bslite.explore.spatial.cells import Array
from bslite.explore.spatial.kernels import ANY_KERNELS, TOGETHER, KernelByKernel
from bslite.explore.spatial.kernels_run import KernelRun
from bslite.explore.spatial.loop_run import LoopRun
from bslite.explore.spatial.machine import SpatialMachine
from bslite.explore.spatial.result import LayerRun, Run, joined
from bslite.explore.spatial.weights import LayerWeights, check_input, random_input, random_weights

LOOP, KERNELS, FEW = "loop", "kernels", "few kernels"
# Ways to run a step, best fused first. "kernels": a matrix-vector kernel per gate, an element-wise kernel per
# operation. "few kernels": the gates in one product where the cell allows it, all that is element-wise in one
# kernel.
WAYS: dict[str, Explorer[SpatialMachine]] = {
    LOOP: loop,
    KERNELS: KernelByKernel(),
    FEW: KernelByKernel((TOGETHER,), (TOGETHER,)),
}
FIRST_STEPS = 3  # simulated before looking for a period: the second and third may begin alike


@dataclass(frozen=True)
class Outcome:
    """One way at one point: what was predicted, and what the simulator did."""

    found: Found
    run: Run

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**self.found.best.as_dict(), "simulated": self.run.as_dict()}


def simulate(
    way: str,
    problem: Recurrent,
    machine: SpatialMachine,
    point: Point,
    weights: Sequence[LayerWeights],
    x: Array,
    state: Sequence[Sequence[Array]] | None = None,
) -> Run:
    """Run ``way`` at a point of its space on ``x [steps, batch, inputs]``, layer after layer.

    ``state``: for each layer h, and for the LSTM c, ``[batch, hidden]``; zeros if not given. If ``x`` has
    fewer steps than the problem, the run repeats the period that the steps show.

    Raises EngineError if the point does not fit the machine, or if the steps show no period.
    """
    runs: list[LayerRun] = []
    chip: LoopRun | KernelRun
    (loop if way == LOOP else ANY_KERNELS).space(problem, machine).point(point.as_dict())
    check_input(problem, x)
    for i in range(problem.layers):
        weights[i].check(problem, i)
        given = weights[i], x, None if state is None else state[i]
        layer = problem.layer(i), machine, point, problem.layers
        with np.errstate(over="ignore", invalid="ignore"):  # NaN and infinities spread as they would
            if way == LOOP:
                chip = LoopRun(loop.mapping(*layer), *given)
            else:
                chip = KernelRun(kernels.mapping(*layer), *given)
            runs.append(chip.run())
        x = runs[-1].outputs
    return joined(machine, runs, problem.steps, problem.steps * problem.batch * problem.weights)


def simulate_some(
    way: str,
    problem: Recurrent,
    machine: SpatialMachine,
    point: Point,
    weights: Sequence[LayerWeights],
    steps: int = FIRST_STEPS,
) -> Run:
    """As many steps as show the period of the rest: ``steps``, twice as many, ..., all of them."""
    while True:
        steps = min(steps, problem.steps)
        try:
            return simulate(way, problem, machine, point, weights, random_input(problem, steps))
        except EngineError:
            if steps == problem.steps:
                raise
            steps *= 2


def compare(
    problem: Recurrent,
    machine: SpatialMachine,
    ways: Mapping[str, Explorer[SpatialMachine]] = WAYS,
    steps: int = FIRST_STEPS,
) -> dict[str, Outcome]:
    """Search each way, simulate its best point, and check that all give the same numbers.

    The order of sums differs from way to way, so "the same" is to within rounding. Raises EngineError if they
    are not, which would be a fault of the simulator.
    """
    weights = random_weights(problem)
    outcomes: dict[str, Outcome] = {}
    for way, explorer in ways.items():
        found = search(explorer, problem, machine)
        run = simulate_some(way, problem, machine, found.best.point, weights, steps)
        outcomes[way] = Outcome(found, run)
    (first, one), *others = outcomes.items()
    for way, other in others:
        common = min(len(one.run.outputs), len(other.run.outputs))
        apart = float(np.linalg.norm(one.run.outputs[:common] - other.run.outputs[:common]))
        if not apart <= 1e-5 * float(np.linalg.norm(one.run.outputs[:common])):
            raise EngineError(f"{problem}: {way} and {first} give different numbers ({apart:.1e} apart)")
    return outcomes


def library_tile(problems: Sequence[Recurrent], machine: SpatialMachine) -> tuple[int, int]:
    """The tile (rows, PCUs along a row) with the least geometric mean of predicted seconds over ``problems``.

    It is what a library that works kernel by kernel would fix once for the machine.
    """
    whole = KernelByKernel()
    logs: dict[tuple[int, int], float] = {}
    for problem in problems:
        priced: dict[tuple[int, int], float] = {}
        for estimate in search(whole, problem, machine).ranked:
            tile = (estimate.point.number("rows"), estimate.point.number("columns"))
            priced[tile] = float(np.log(estimate.seconds))
        logs = {t: logs.get(t, 0.0) + s for t, s in priced.items() if t in logs or problem is problems[0]}
    if not logs:
        raise EngineError("no tile fits this machine for all of the problems")
    return min(logs, key=lambda tile: (logs[tile], tile))
