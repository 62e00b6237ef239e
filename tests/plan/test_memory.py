"""Places of buffers: none shares memory with one that exists with it, and threads keep what they have."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.graphs import Graph
from support.noise import noise

from bslite import ModelSpec
from bslite.engines.cpu.detect import detect
from bslite.passes import simplify
from bslite.plan import Plan, build_plan
from bslite.plan.core.memory import lifetimes, place_buffers
from bslite.plan.core.plan import Access
from bslite.plan.core.views import Buffer
from bslite.plan.cpu.tuning import Banding, Tuning


def shrinking() -> ModelSpec:
    """Layers whose values become smaller, with zeros beside some of them."""
    g = Graph()
    y = g.input("x", ("N", 16, 64, 64), (1, 16, 64, 64))
    for i, (depth, channels, size) in enumerate(
        [(16, 128, 1), (128, 64, 3), (64, 48, 1), (48, 96, 3), (96, 24, 1)]
    ):
        weight = noise(channels, depth, size, size)
        y = g("silu", f"act{i}", g("conv2d", f"layer{i}", y, weight=weight, padding=size // 2))
    return g.build(y)


def planned(threads: int) -> Plan[Any]:
    tuning = Tuning(banding=Banding(longest=1))  # no stacks
    return build_plan(simplify(shrinking()), [(1, 16, 64, 64)], detect(threads), tuning=tuning)


def owners(plan: Plan[Any], threads: int) -> int:
    """The elements that a thread takes over from another one, if each has an equal share of every buffer."""
    spans, owner, lost = lifetimes(plan), dict[int, int](), 0
    for name in sorted(spans, key=lambda n: spans[n]):
        start, size = plan.places[name], plan.buffers[name].size
        for at in range(start, start + size, 16):
            mine = (at - start) * threads // size
            lost += 16 * (owner.get(at, mine) != mine)
            owner[at] = mine
    return lost


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_buffers_that_exist_together_lie_apart(threads: int) -> None:
    apart(planned(threads))


def apart(plan: Any) -> None:
    """Asserts it."""
    spans = lifetimes(plan)
    for a, (first, last) in spans.items():
        assert plan.places[a] >= 0
        assert plan.places[a] + plan.buffers[a].size <= plan.arena_size
        for b, (other_first, other_last) in spans.items():
            if a < b and first <= other_last and other_first <= last:
                low, high = sorted((a, b), key=lambda n: plan.places[n])
                assert plan.places[low] + plan.buffers[low].size <= plan.places[high]


@pytest.mark.parametrize(("threads", "less"), [(2, 0.1), (3, 0.6), (8, 0.9)])
def test_threads_keep_their_shares(threads: int, less: float) -> None:
    """Where a buffer's memory is used again, less of it is another thread's, and no more memory is taken."""
    plan = planned(threads)
    lost, arena = owners(plan, threads), plan.arena_size
    place_buffers(plan)
    assert arena <= 1.1 * plan.arena_size
    assert lost < less * owners(plan, threads)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_buffers_of_any_lifetimes(threads: int, seed: int) -> None:
    """Those that exist together lie apart, all below the end, in little more memory than at the lowest."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 40, 60) * rng.choice([8, 100, 1000])
    steps: list[Any] = [SimpleNamespace(reads=[], writes=[Access(f"b{i}", 0, 1)]) for i in range(60)]
    for i in range(60):
        for later in rng.integers(i, min(60, i + rng.integers(1, 12)), 3):
            steps[later].reads.append(Access(f"b{i}", 0, 1))
    buffers = {f"b{i}": Buffer(f"b{i}", int(size)) for i, size in enumerate(sizes)}
    plan: Any = SimpleNamespace(buffers=buffers, steps=steps, places={}, arena_size=0)
    place_buffers(plan)
    least = plan.arena_size
    place_buffers(plan, shares=threads)
    assert plan.arena_size <= 1.15 * least
    apart(plan)
