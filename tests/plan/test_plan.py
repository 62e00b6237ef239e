"""Plans: deterministic, quick, JSON there and back, zero-copy where promised, bounded in memory."""

import cProfile
import pstats
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.graphs import Graph, network

import bslite
from bslite import ModelSpec
from bslite.engines.cpu.detect import detect
from bslite.machine import Machine
from bslite.passes import simplify
from bslite.plan import Plan, build_plan
from bslite.plan.core.plan import Access
from bslite.plan.core.views import contiguous, reshaped_strides
from bslite.plan.cpu.reduction import LONGEST, reduction, reduction_of_rows
from bslite.plan.cpu.tiling import cut_line, line_tiling, max_rows


@cache
def simplified(arch: str) -> ModelSpec:
    return simplify(network(arch))


def plan_of(arch: str, batch: int = 1, machine: Machine | None = None, **options: Any) -> Plan:
    spec = simplified(arch)
    shapes = [(batch, *i.example[1:]) for i in spec.inputs]
    return build_plan(spec, shapes, machine or detect(2), **options)


@pytest.mark.parametrize("batch", [1, 16])
@pytest.mark.parametrize("arch", ["resnet50", "densenet201", "mobilenet_v2", "inception_v3"])
def test_equal_models_have_equal_plans(arch: str, batch: int) -> None:
    plan = plan_of(arch, batch)
    assert plan_of(arch, batch) == plan
    assert "stack" in str(plan) or batch == 1


@pytest.mark.parametrize("batch", [1, 16])
def test_planning_the_longest_network_takes_three_million_calls(batch: int) -> None:
    """Of functions, about a second on a slow machine; clocks differ too much to be asserted on."""
    plan_of("densenet201", batch)  # shape rules and tilings are remembered from here on
    profile = cProfile.Profile()
    profile.runcall(plan_of, "densenet201", batch)
    assert pstats.Stats(profile).total_calls < 3_000_000  # type: ignore[attr-defined]


def test_threads_that_may_sleep_want_more_work_than_a_team() -> None:
    """As models grow, a team may join first, then a parallel region, which waits for all of its threads."""
    g = Graph()
    spec = g.build(g("tanh", "y", g.input("x", ("N", 1024), (1, 1024))))
    plans = [build_plan(spec, [(rows, 1024)], Machine(threads=2)) for rows in (1, 150, 1000)]
    assert [(p.threads, p.threads_in_region) for p in plans] == [(1, 1), (2, 1), (2, 2)]
    assert build_plan(spec, [(1000, 1024)], Machine(threads=1)).threads == 1


def test_a_pool_takes_a_cycle_for_an_operation() -> None:
    """As multiply-adds, of which four a cycle are done, these 78,000 cycles would be too few for threads."""
    g = Graph()
    x = g.input("x", ("N", 64, 28, 28), (1, 64, 28, 28))
    spec = g.build(g("max_pool2d", "y", x, kernel=5, stride=1, padding=2))
    assert build_plan(spec, [(1, 64, 28, 28)], Machine(threads=2)).threads == 2


@pytest.mark.parametrize("arch", ["densenet121", "inception_v3", "googlenet", "squeezenet1_1"])
def test_concat_copies_nothing(arch: str) -> None:
    copies = [step.layers for step in plan_of(arch).steps if step.kernel == "copy"]
    assert copies in ([], [("outputs",)])  # SqueezeNet's last layer is a view; the caller gets an array


def test_branches_do_not_wait_for_each_other() -> None:
    steps = plan_of("inception_v3").steps
    assert sum(step.after < i for i, step in enumerate(steps)) > len(steps) // 4
    assert all(step.after == i for i, step in enumerate(plan_of("inception_v3", layerwise=True).steps))


@pytest.mark.parametrize("arch", ["densenet121", "inception_v3", "resnet50"])
def test_no_step_starts_before_what_it_depends_on(arch: str) -> None:
    """Brute force: every pair of steps that touch a common element of the arena, one of them writing."""
    plan = plan_of(arch)

    def placed(access: Access) -> tuple[str, int, int, Access]:
        place = plan.places.get(access.buffer)
        if place is None:
            return access.buffer, access.lo, access.hi, access
        return "arena", place + access.lo, place + access.hi, access

    def clash(some: list[Access], others: list[Access]) -> bool:
        for a in map(placed, some):
            for b in map(placed, others):
                meet = a[0] == b[0] and a[1] < b[2] and b[1] < a[2]
                if meet and (a[3].buffer != b[3].buffer or a[3].overlaps(b[3])):
                    return True
        return False

    for i, step in enumerate(plan.steps):
        for earlier in plan.steps[step.after : i]:
            assert not clash(step.reads, earlier.writes)
            assert not clash(step.writes, earlier.writes)
            assert not clash(step.writes, earlier.reads)


def test_a_plan_for_another_machine_needs_nothing_of_it() -> None:
    big = plan_of("resnet50", machine=Machine(threads=48, lanes=8, registers=16, l2=512 << 10))
    convs = [step for step in big.steps if step.kernel == "conv"]
    assert all(step.record.numbers()["sweep"].most <= 14 for step in convs)
    assert sum(step.items >= 48 for step in convs) > len(convs) // 2


@pytest.mark.networks
def test_memory_does_not_grow_with_runs_and_shapes() -> None:
    resource = pytest.importorskip("resource")
    spec = network("squeezenet1_1")
    rng = np.random.default_rng(0)

    def runs(count: int) -> None:
        for i in range(count):
            x = rng.standard_normal((1 + i % 2, 3, 32 + 2 * (i % 25), 32)).astype(np.float32)
            bslite.run(spec, x)

    runs(100)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    runs(400)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 16 << 10, f"{grown} KiB more after 400 further runs"


@given(st.integers(1, 500), st.integers(1, 14))
def test_a_line_is_cut_into_equal_tiles(pixels: int, most: int) -> None:
    cut = cut_line(pixels, most)
    assert cut.tiles1 * cut.rows1 + cut.tiles2 * cut.rows2 == pixels
    assert 0 <= cut.rows1 - cut.rows2 <= 1
    assert cut.rows1 <= most
    assert cut.tiles1 + cut.tiles2 == -(-pixels // most)


@pytest.mark.parametrize(("lanes", "registers", "rows"), [(16, 32, 14), (8, 16, 6), (4, 16, 6), (4, 32, 14)])
def test_the_tile_fits_the_register_file(lanes: int, registers: int, rows: int) -> None:
    machine = Machine(lanes=lanes, registers=registers)
    assert max_rows(machine, 2) == rows
    for channels in (8, 16, 24, 64, 1000):
        tiling = line_tiling(machine, 56, channels)
        assert tiling.cut.rows1 * tiling.width + tiling.width + 1 <= registers
        assert (tiling.panels - 1) * tiling.width + tiling.tail == -(-channels // lanes)


@given(st.integers(1, 11), st.integers(1, 11), st.integers(1, 5000))
def test_a_sum_is_cut_the_same_way_in_any_layout(r: int, s: int, c: int) -> None:
    merged = reduction(r, s, c, 100 * s * c, c, True)
    apart = reduction(r, s, c, 100 * s * c, c, False)

    def terms(depth: int, offsets: tuple[int, ...], chunk: int) -> list[tuple[int, ...]]:
        parts = [offsets[i : i + chunk] for i in range(0, len(offsets), chunk)]
        return [tuple(o + d for o in part for d in (0, depth - 1)) for part in parts]

    assert merged.size == apart.size == r * s * c
    assert [(p[0], p[-1]) for p in terms(merged.depth, merged.offsets, merged.chunk_taps)] == [
        (p[0], p[-1]) for p in terms(apart.depth, apart.offsets, apart.chunk_taps)
    ]
    if c <= LONGEST:
        assert merged.depth * merged.chunk_taps <= LONGEST


@pytest.mark.parametrize(
    ("terms", "outputs", "parts"), [(200, 5, 4), (200, 17, 1), (64, 1, 1), (4096, 16, 64)]
)
def test_a_linear_layer_of_few_outputs_is_summed_in_short_parts(terms: int, outputs: int, parts: int) -> None:
    cut = reduction_of_rows(terms, outputs)
    assert (len(cut.offsets), cut.chunk_taps, cut.size) == (parts, 1, terms)
    assert sorted(o + i for o in cut.offsets for i in range(cut.depth)) == list(range(terms))


@pytest.mark.parametrize("outputs", [1, 5])
def test_a_score_is_as_exact_as_a_sum_along_lanes(outputs: int) -> None:
    """Numbers of one sign: one running sum of 1,000 terms is five times as far from the truth."""
    rng = np.random.default_rng(0)
    x, weight = (rng.uniform(0.5, 1.5, shape).astype(np.float32) for shape in ((64, 1000), (outputs, 1000)))
    net = Graph()
    spec = net.build(net("linear", "y", net.input("x", ("N", 1000), x.shape), weight=weight))
    truth = x.astype(np.float64) @ weight.T.astype(np.float64)
    in_lanes = np.stack([x * row for row in weight], 1).reshape(64, outputs, -1, 8).cumsum(2)[:, :, -1].sum(2)
    ours, theirs = (np.linalg.norm(y - truth) for y in (bslite.run(spec, x), in_lanes))
    assert ours < 1.5 * theirs


@settings(max_examples=300)
@given(st.data())
def test_reshape_of_strides_agrees_with_numpy(data: st.DataObject) -> None:
    dims = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    order = data.draw(st.permutations(range(len(dims))))
    base = np.zeros(dims, np.int32).transpose(order)
    rest, new = base.size, []
    while rest > 1:
        new.append(data.draw(st.sampled_from([d for d in range(2, rest + 1) if rest % d == 0])))
        rest //= new[-1]
    new += [1] * data.draw(st.integers(0, 2))
    strides = tuple(s // 4 for s in base.strides)
    got = reshaped_strides(base.shape, strides, tuple(new))
    want = base.reshape(new)
    if got is None:
        assert not np.shares_memory(want, base)
    else:
        flat = np.arange(np.prod(dims), dtype=np.int32)
        mine = np.lib.stride_tricks.as_strided(flat, new, [4 * s for s in got])
        theirs = flat.reshape(dims).transpose(order).reshape(new)
        assert np.array_equal(mine, theirs)
    assert contiguous((2, 3)) == (3, 1)


def test_weights_are_packed_in_another_width_only_where_that_is_much_better() -> None:
    """25 pixels take 2 % longer in panels of 3 registers than of 2; one pixel twice as long in 1 as in 2."""
    machine = Machine(lanes=8, registers=16)
    assert line_tiling(machine, 25, 512).width == 2
    assert line_tiling(machine, 25, 512, packed=3).width == 3
    assert line_tiling(machine, 1, 512, packed=1).width == 4


def test_a_model_is_fused_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans for other sizes take the layers, and the axes that lie innermost, as they were found."""
    spec, made = simplify(network("resnet18").replace(name="another")), []
    layering = import_module("bslite.passes.fuse")  # the package has a function of that name
    find = layering._fuse
    monkeypatch.setattr(layering, "_fuse", lambda spec, norms: made.append(spec) or find(spec, norms))
    shapes = [(1, 3, 64, 64)], [(2, 3, 40, 56)]
    plans = [build_plan(spec, shape, Machine()) for shape in shapes]
    assert made == [spec]
    for shape, plan in zip(shapes, plans, strict=True):
        assert plan == build_plan(simplify(network("resnet18").replace(name="another")), shape, Machine())
