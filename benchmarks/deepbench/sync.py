"""What the hand-over from one time step to the next costs, by itself and as a layer pays for it.

By itself: threads that do nothing but count themselves and wait until all have. In the engine: a layer so
small that little else is left, four blocks of units, two for each of two threads or all for one; what two
threads take beyond half the time of one is what a step pays for its synchronisation.
"""

import statistics
from dataclasses import dataclass

import numpy as np

from benchmarks.deepbench.engines import Traced
from bslite.cli.timing import interleaved
from bslite.explore.cpu import Loops
from bslite.spec import Array, GraphBuilder, ModelSpec

STEPS, PER_TURN, BLOCKS = 4000, 5, 4


@dataclass(frozen=True)
class Sync:
    """Seconds per time step: of ``meeting`` alone, and of the small layer on one thread and on two."""

    meeting: float
    hidden: int
    steps: int
    one: float
    two: float
    threads: int  # that the plan for two really has for this layer

    @property
    def cost(self) -> float:
        """Seconds that a step of the layer pays."""
        return self.two - self.one / 2


def small_layer(steps: int) -> tuple[ModelSpec, Array]:
    """A plain RNN of `BLOCKS` registers of units, and an input."""
    from bslite.engines.cpu.detect import detect

    hidden = BLOCKS * detect(2).lanes
    rng = np.random.default_rng(0)
    graph = GraphBuilder("a small layer")
    x = graph.input("x", (steps, 1, hidden))
    for role in ("weight_ih", "weight_hh"):
        graph.params[role] = rng.uniform(-0.1, 0.1, (hidden, hidden)).astype(np.float32)
    roles = {role: role for role in graph.params}
    spec = graph.build(graph.add("rnn", "layer", x, params=roles, activation="relu"))
    return spec, rng.standard_normal((steps, 1, hidden), np.float32)


def measure(rounds: int = 9, steps: int = STEPS) -> Sync:
    """Of two threads."""
    from bslite.engines.cpu.stream import meeting

    spec, x = small_layer(steps)
    # The search would not take two threads for so little.
    each = {threads: Loops(BLOCKS // threads, tile=1, threads=threads, alternate=True) for threads in (1, 2)}
    traced = {str(threads): Traced(spec, x, threads, loops) for threads, loops in each.items()}
    interleaved(traced, rounds, PER_TURN, turned=True)
    one, two = (t.seconds(rounds, PER_TURN) / steps for t in traced.values())
    plan = traced["2"].session.plan
    items = max(plan.steps[i].items for i in traced["2"].steps)
    meet = statistics.median(meeting(2, steps) for _ in range(3 * rounds))
    return Sync(meet, x.shape[2], steps, one, two, min(items, plan.threads))
