"""The loops of recurrent layers: every point of the space gives the same bits; the pick."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from support.graphs import one_op
from support.noise import noise
from torch import nn

import bslite
from bslite import ModelSpec
from bslite.engines.cpu.engine import prepare
from bslite.explore import Recurrent, search
from bslite.explore.cpu import Explorer, Loops, choose, estimate, space
from bslite.machine import Machine
from bslite.plan import Plan
from bslite.plan.cpu.tuning import Tuning

Array = NDArray[Any]
LANES = 16
# Time comes first here, and torch.export does not keep it free.
pytestmark = pytest.mark.filterwarnings("ignore:.*the batch is fixed at the example's")


def answers(spec: ModelSpec, xs: list[Array], threads: int, loops: Loops | None) -> tuple[Plan, list[Array]]:
    """All outputs, with the loop parameters given."""
    session = prepare(spec, xs, threads, False, tuning=Tuning(loops))
    outputs = [np.empty(v.shape, np.float32) for v in session.plan.outputs]
    session.run(xs, outputs)
    return session.plan, outputs


def recurrent_steps(plan: Plan) -> list[Any]:
    return [step for step in plan.steps if step.kernel == "recurrent"]


def network(kind: str, inputs: int, hidden: int, **options: Any) -> nn.Module:
    torch.manual_seed(5)
    module: nn.Module = getattr(nn, kind)(inputs, hidden, **options)
    return module.eval()


@pytest.mark.parametrize(("kind", "batch"), [("lstm", 1), ("lstm", 5), ("gru", 2), ("rnn", 1), ("rnn", 7)])
def test_every_point_gives_the_same_bits(kind: str, batch: int) -> None:
    hidden, steps = 8 * LANES - 3, 6
    module = network(kind.upper(), 21, hidden, num_layers=3)
    x = noise(steps, batch, 21, seed=2)
    spec = bslite.from_torch(module, torch.from_numpy(x))
    machine = Machine(threads=2)
    problem = Recurrent(kind, hidden, hidden, steps, batch, layers=3)
    want = [np.asarray(y) for y in bslite.run(spec, x, layerwise=True, threads=1)]
    seen = set()
    points = [Loops.of(point) for point in space(problem, machine).points()]
    assert len(points) >= 16
    for loops in random.Random(0).sample(points, min(30, len(points))):
        plan, got = answers(spec, [x], 2, loops)
        record = recurrent_steps(plan)[-1].record
        seen.add((record.units, record.tile_units, record.shares, record.sweeps_back))
        for y, z in zip(got, want, strict=True):
            np.testing.assert_array_equal(y, z, err_msg=str(loops))
    assert len(seen) > 10


def test_a_layer_with_a_batch_that_leaves_no_rows() -> None:
    """A forced tile that is wider than the registers allow for this batch is still right."""
    x = noise(3, 9, 8)
    weights = {"weight_ih": noise(32, 8, seed=1), "weight_hh": noise(32, 32, seed=2)}
    spec = one_op("rnn", x, **weights, activation="tanh")
    loops = Loops(units=2, tile=2, threads=1, alternate=False)
    _, (got,) = answers(spec, [x], 1, loops)
    np.testing.assert_array_equal(got, bslite.run(spec, x))


@pytest.mark.parametrize("threads", [1, 2, 48])
@pytest.mark.parametrize("registers", [16, 32])
def test_the_pick_is_of_the_space_and_the_cheapest(threads: int, registers: int) -> None:
    machine = Machine(threads=threads, registers=registers, lanes=8 if registers == 16 else 16)
    for kind, hidden, batch in (("lstm", 1024, 1), ("gru", 200, 4), ("rnn", 17, 64)):
        problem = Recurrent(kind, hidden, hidden, 25, batch)
        found = search(Explorer(), problem, machine)
        assert len(found.ranked) == len(list(space(problem, machine).points()))
        loops, seconds = choose(problem, machine)
        assert Loops.of(found.best.point) == loops
        assert seconds == min(estimate(problem, machine, e.point).seconds for e in found.ranked)
        assert loops.threads <= threads


def test_counters_are_alone_on_their_lines() -> None:
    from bslite.kernels.contracts.cpu.recurrent import COUNTER
    from bslite.kernels.cpu.vector import atomic

    assert COUNTER == atomic.LINE


def test_prices_follow_the_machine() -> None:
    problem = Recurrent("lstm", 1024, 1024, 25, 1)
    point = search(Explorer(), problem, Machine(threads=2)).best.point
    slow = Machine(threads=2, l2_bytes_per_cycle=8.0, l3_bytes_per_cycle=2.0, memory_bytes_per_cycle=1.0)
    assert estimate(problem, slow, point).seconds > 2 * estimate(problem, Machine(threads=2), point).seconds
    # What fits L2 twice over is not read from beyond it.
    big = Machine(threads=2, l2=32 << 20)
    assert estimate(problem, big, point).seconds < estimate(problem, Machine(threads=2), point).seconds
