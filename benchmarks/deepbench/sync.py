"""What the hand-over from one time step to the next costs: a layer so small that little else is left.

Two blocks of units are one for each of two threads, or both for one. What two threads take beyond half the
time of one is what a step pays for its synchronisation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.deepbench.engines import Traced
from bslite.cli.timing import interleaved
from bslite.spec import GraphBuilder, ModelSpec

STEPS, PER_TURN = 4000, 5


@dataclass(frozen=True)
class Sync:
    """Seconds per time step on one thread and on two, and what of the latter is synchronisation."""

    hidden: int
    steps: int
    one: float
    two: float
    threads: int  # that the plan for two really has for this layer

    @property
    def cost(self) -> float:
        """Seconds per time step."""
        return self.two - self.one / 2


def two_blocks(steps: int) -> tuple[ModelSpec, np.ndarray]:
    """A plain RNN of two registers of units, and an input."""
    from bslite.engines.cpu.detect import detect

    hidden = 2 * detect(2).lanes
    rng = np.random.default_rng(0)
    graph = GraphBuilder("two blocks of units")
    x = graph.input("x", (steps, 1, hidden))
    for role in ("weight_ih", "weight_hh"):
        graph.params[role] = rng.uniform(-0.1, 0.1, (hidden, hidden)).astype(np.float32)
    roles = {role: role for role in graph.params}
    spec = graph.build(graph.add("rnn", "layer", x, params=roles, activation="relu"))
    return spec, rng.standard_normal((steps, 1, hidden), np.float32)


def measure(rounds: int = 9, steps: int = STEPS) -> Sync:
    """The engine as it is, on one thread and on two in turns."""
    spec, x = two_blocks(steps)
    traced = {str(threads): Traced(spec, x, threads) for threads in (1, 2)}
    interleaved(traced, rounds, PER_TURN, turned=True)
    one, two = (t.seconds(rounds, PER_TURN) / steps for t in traced.values())
    plan = traced["2"].session.plan
    items = max(plan.steps[i].items for i in traced["2"].steps)
    return Sync(x.shape[2], steps, one, two, min(items, plan.threads))
