"""The spatial accelerator: what its units compute, how many cycles they take, and what was predicted."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.check import Array, assert_three_way

from bslite import reference
from bslite.errors import EngineError, InputError, WeightsError
from bslite.explore import Recurrent, search
from bslite.explore.space import Point
from bslite.explore.spatial import SpatialMachine, cells, grid, kernels, loop
from bslite.explore.spatial.compare import (
    FEW,
    KERNELS,
    LOOP,
    WAYS,
    compare,
    library_tile,
    simulate,
    simulate_some,
)
from bslite.explore.spatial.kernels import ANY_KERNELS
from bslite.explore.spatial.result import Run
from bslite.explore.spatial.weights import LayerWeights, random_input, random_weights

ROOMY = SpatialMachine(pmu_bytes=512 << 10)  # all weights on chip
SMALL = replace(ROOMY, rows=8, columns=6)
TIGHT = SpatialMachine(pmu_bytes=2 << 10, dram_bandwidth=400e9)  # most of them outside

#: How far predicted and simulated cycles may be apart: all is known but what queues up for the channel.
ON_CHIP, STREAMED = 0.01, 0.2


def exact(problem: Recurrent, weights: list[LayerWeights], x: Array, dtype: type, state: Any = None) -> Array:
    """The reference's outputs ``[steps, batch, hidden]`` and, behind them, h and c of the last layer."""
    y = x.astype(dtype)
    attrs: dict[str, Any] = {"lstm": {}, "gru": {"reset_after": True}, "rnn": {"activation": "tanh"}}[
        problem.kind
    ]
    for i, layer in enumerate(weights):
        params = {name: value.astype(dtype) for name, value in vars(layer).items()}
        first = () if state is None else tuple(s.astype(dtype) for s in state[i])
        made = reference.FUNCTIONS[problem.kind](
            y, *first, **params, reverse=False, initial_state=bool(first), lengths=False, **attrs
        )
        y = made[: len(x)]
    return np.asarray(made)


def check(problem: Recurrent, machine: SpatialMachine, way: str, point: Point, state: Any = None) -> Run:
    """Simulate all steps and compare with the reference in float64 and float32."""
    weights, x = random_weights(problem), random_input(problem, problem.steps)
    run = simulate(way, problem, machine, point, weights, x, state)
    got = np.concatenate([run.outputs, *(s[None] for s in run.states[-1])])
    with np.errstate(all="ignore"):
        peer, truth = (exact(problem, weights, x, dtype, state) for dtype in (np.float32, np.float64))
    assert_three_way(got, peer, truth)
    return run


def at(hu: int, ru: int, rv: int, gp: int) -> Point:
    return Point((("hu", hu), ("ru", ru), ("rv", rv), ("gp", gp)))


def tile(rows: int, columns: int, gates: str = "each", pointwise: str = "each") -> Point:
    return Point((("rows", rows), ("columns", columns), ("gates", gates), ("pointwise", pointwise)))


ALL = "together"
CASES = [
    ("one of everything", Recurrent("lstm", 1, 1, 1, 1), at(1, 1, 1, 1), tile(1, 1)),
    ("units that do not divide", Recurrent("lstm", 37, 19, 5, 1), at(5, 3, 8, 4), tile(5, 3)),
    ("gates in two rounds", Recurrent("lstm", 37, 19, 5, 2), at(5, 3, 8, 2), tile(7, 2, "together")),
    ("gates one by one", Recurrent("lstm", 21, 40, 4, 1), at(4, 1, 16, 1), tile(9, 1, "each", ALL)),
    ("more units than lanes", Recurrent("lstm", 50, 50, 4, 2), at(20, 2, 16, 4), tile(40, 4, ALL, ALL)),
    ("gru", Recurrent("gru", 37, 19, 5, 3), at(5, 3, 8, 3), tile(5, 3)),
    ("gru, gates one by one", Recurrent("gru", 37, 19, 5, 1), at(5, 3, 8, 1), tile(30, 2, "together")),
    ("gru, many units", Recurrent("gru", 70, 33, 3, 1), at(18, 2, 16, 3), tile(48, 3, "each", ALL)),
    ("rnn", Recurrent("rnn", 40, 12, 6, 2), at(7, 2, 4, 1), tile(11, 2)),
    ("two layers", Recurrent("lstm", 24, 9, 4, 2, 2), at(8, 1, 16, 4), tile(16, 2)),
    ("three layers of gru", Recurrent("gru", 20, 9, 4, 1, 3), at(6, 2, 8, 3), tile(16, 2, ALL, ALL)),
]
NAMES = [case[0] for case in CASES]


@pytest.mark.parametrize("machine", [ROOMY, TIGHT], ids=["on chip", "streamed"])
@pytest.mark.parametrize(("problem", "looped", "tiled"), [case[1:] for case in CASES], ids=NAMES)
def test_same_numbers_as_the_reference(
    problem: Recurrent, looped: Point, tiled: Point, machine: SpatialMachine
) -> None:
    check(problem, machine, LOOP, looped)
    check(problem, machine, KERNELS, tiled)


@pytest.mark.parametrize("way", [LOOP, KERNELS])
def test_from_a_state(way: str) -> None:
    problem = Recurrent("lstm", 20, 7, 3, 2, 2)
    rng = np.random.default_rng(3)
    state = [[rng.standard_normal((2, 20), np.float32) for _ in "hc"] for _ in range(2)]
    check(problem, ROOMY, way, at(6, 2, 8, 4) if way == LOOP else tile(8, 2), state)


@pytest.mark.parametrize("way", [LOOP, KERNELS])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinities_go_where_they_go_in_the_reference(way: str, value: float) -> None:
    problem = Recurrent("gru", 20, 7, 3, 3)
    state = [[np.zeros((3, 20), np.float32)]]
    state[0][0][1, 4] = value
    check(problem, ROOMY, way, at(6, 2, 8, 3) if way == LOOP else tile(8, 2), state)


@pytest.mark.parametrize("seed", range(12))
def test_any_problem_at_any_point(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kind = ("lstm", "gru", "rnn")[seed % 3]
    hidden, inputs, steps, batch = (int(n) for n in rng.integers(1, (48, 48, 6, 4)))
    problem = Recurrent(kind, hidden, inputs, steps, batch)
    machine = SpatialMachine(
        rows=int(rng.integers(4, 12)), columns=int(rng.integers(4, 12)),
        lanes=int(2 ** rng.integers(2, 5)), banks=int(2 ** rng.integers(1, 5)),
        hop_cycles=int(rng.integers(1, 3)), tracks=int(rng.integers(2, 9)),
        stages=int(rng.integers(3, 7)), function_stages=int(rng.integers(1, 8)),
        pmu_bytes=int(2 ** rng.integers(11, 18)), dram_bandwidth=float(rng.choice([20e9, 2e12])),
    )  # fmt: skip
    for way, explorer in ((LOOP, loop), (KERNELS, ANY_KERNELS)):
        points = list(explorer.space(problem, machine).points())
        for i in rng.integers(len(points), size=2):
            run = check(problem, machine, way, points[i])
            predicted = explorer.estimate(problem, machine, points[i])
            bound = ON_CHIP if predicted.notes["weights on chip"] == 1 else STREAMED
            assert abs(predicted.seconds / run.seconds - 1) < bound, f"{way} {problem} at {points[i]}"


def test_a_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Recurrent("lstm", 16, 16, 2, 1)
    check(problem, ROOMY, LOOP, at(4, 2, 8, 4))
    monkeypatch.setitem(cells.FUNCTIONS, "sigmoid", lambda x: np.float32(0.5) + np.float32(0.249) * x)
    with pytest.raises(AssertionError, match="relative error"):
        check(problem, ROOMY, LOOP, at(4, 2, 8, 4))


def test_cycles_of_one_unit_by_hand() -> None:
    # The input is there in cycle 101: 1 of the channel, 100 of latency. x's chunk is read in it, h's in the
    # next. From then on: 1 for the read, 2 to the farthest cell, where it is multiplied on arrival, 1 to add,
    # 2 back, 1 to collect, 1 to write, 1 to read, 4 for tanh, 2 to h's memory, 1 to write; output: 1 and 100.
    problem = Recurrent("rnn", 1, 1, 1, 1)
    point = at(1, 1, 1, 1)
    assert loop.mapping(problem, ROOMY, point).array.reach == 2
    run = check(problem, ROOMY, LOOP, point)
    assert run.cycles == 101 + 1 + (1 + 2) + 1 + 2 + (1 + 1) + (1 + 4) + (2 + 1) + 101


def test_a_step_waits_for_h_and_for_nothing_else() -> None:
    # Few inputs: the way of h shows in every step; four times as many cover it.
    point = at(16, 1, 16, 4)
    near = replace(ROOMY, dram_latency=1)
    few, many = (check(Recurrent("lstm", 64, n, 6, 1), near, LOOP, point) for n in (16, 64 * 16))
    assert few.stalls["h of the step before"] > 0
    assert many.stalls["h of the step before"] == 0
    slow = replace(near, hop_cycles=3)
    assert check(Recurrent("lstm", 64, 16, 6, 1), slow, LOOP, point).cycles > few.cycles
    assert "starting kernels" not in few.stalls


def test_the_price_of_a_launch() -> None:
    problem = Recurrent("lstm", 32, 32, 5, 1)
    cheap, dear = (
        check(problem, replace(ROOMY, launch_cycles=cycles), KERNELS, tile(16, 2)) for cycles in (0, 50)
    )
    assert dear.cycles - cheap.cycles == 50 * 5 * (4 + 9)  # a product per gate, nine operations
    few = check(problem, ROOMY, KERNELS, tile(16, 2, "together", "together"))
    assert few.cycles < cheap.cycles


def test_streamed_weights_take_the_channels_time() -> None:
    problem = Recurrent("lstm", 128, 128, 4, 1)
    machine = replace(TIGHT, pmu_bytes=1 << 10, dram_bandwidth=25.6e9)
    point = at(8, 2, 16, 4)
    mapped = loop.mapping(problem, machine, point)
    assert mapped.streamed == mapped.blocks - mapped.resident > 0
    run = check(problem, machine, LOOP, point)
    moved = problem.steps * mapped.streamed * mapped.tile_bytes / 25.6
    assert moved <= run.cycles <= 1.05 * moved
    assert run.utilisation["memory channel"] > 0.95
    faster = check(problem, replace(machine, dram_bandwidth=51.2e9), LOOP, point)
    assert 1.8 < run.cycles / faster.cycles < 2.05


def test_fewer_banks_than_lanes_are_slower() -> None:
    problem = Recurrent("lstm", 64, 64, 3, 1)
    runs = [check(problem, replace(ROOMY, banks=banks), LOOP, at(8, 2, 16, 4)) for banks in (16, 8, 4)]
    busy = [run.stalls["inputs"] + run.stalls["h of the step before"] for run in runs]
    work = [run.cycles - waited for run, waited in zip(runs, busy, strict=True)]
    assert work[0] < work[1] < work[2]


@pytest.mark.parametrize(
    "machine", [ROOMY, replace(TIGHT, dram_bandwidth=51.2e9)], ids=["on chip", "streamed"]
)
@pytest.mark.parametrize("way", list(WAYS))
def test_steps_put_in_by_their_period_are_those_simulated(way: str, machine: SpatialMachine) -> None:
    problem = Recurrent("gru", 48, 48, 24, 2)
    weights = random_weights(problem)
    point = search(WAYS[way], problem, machine).best.point
    whole = simulate(way, problem, machine, point, weights, random_input(problem, 24))
    part = simulate_some(way, problem, machine, point, weights)
    assert part.simulated < 24
    assert (part.cycles, part.busy, part.stalls) == (whole.cycles, whole.busy, whole.stalls)
    assert np.array_equal(part.outputs, whole.outputs[: part.simulated])


def test_without_a_period_nothing_is_put_in() -> None:
    problem = Recurrent("gru", 48, 48, 24, 2)
    weights = random_weights(problem)
    point = search(loop, problem, ROOMY).best.point
    with pytest.raises(EngineError, match="2 simulated steps do not show a period, so 24 cannot be told"):
        simulate(LOOP, problem, ROOMY, point, weights, random_input(problem, 2))


def test_a_unit_is_never_busier_than_always() -> None:
    for way, outcome in compare(Recurrent("lstm", 48, 48, 5, 2), SMALL).items():
        for unit, share in outcome.run.utilisation.items():
            assert 0 < share <= 1, f"{way}: {unit}"


def spearman(a: list[float], b: list[float]) -> float:
    ranks = [np.argsort(np.argsort(values)) for values in (a, b)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


@pytest.mark.parametrize(
    ("machine", "bound"), [(SMALL, ON_CHIP), (replace(SMALL, pmu_bytes=2 << 10), STREAMED)]
)
def test_predicted_and_simulated_agree_over_the_space(machine: SpatialMachine, bound: float) -> None:
    problem = Recurrent("lstm", 48, 48, 4, 1)
    weights = random_weights(problem)
    for way, explorer in ((LOOP, loop), (KERNELS, ANY_KERNELS)):
        ranked = search(explorer, problem, machine).ranked
        chosen = ranked[:: max(1, len(ranked) // 16)]
        predicted = [e.seconds for e in chosen]
        ran = [simulate_some(way, problem, machine, e.point, weights).seconds for e in chosen]
        assert spearman(predicted, ran) > 0.97
        assert max(abs(p / r - 1) for p, r in zip(predicted, ran, strict=True)) < bound


def test_the_loop_beats_kernel_by_kernel_and_most_where_steps_are_short() -> None:
    gains = []
    for hidden in (48, 96, 192):
        outcomes = compare(Recurrent("lstm", hidden, hidden, 25, 1), SMALL)
        first = outcomes[LOOP].run.seconds
        assert first < outcomes[FEW].run.seconds < outcomes[KERNELS].run.seconds
        gains.append(outcomes[KERNELS].run.seconds / first)
    assert gains[0] > gains[1] > gains[2] > 1.5


def test_a_library_has_one_tile() -> None:
    problems = [Recurrent("lstm", n, n, 4, 1) for n in (24, 40)]
    machine = SpatialMachine(rows=6, columns=4)
    rows, columns = library_tile(problems, machine)
    costs = []
    for problem in problems:
        fixed = kernels.KernelByKernel(tile=(rows, columns))
        costs.append(search(fixed, problem, machine).best.seconds)
        assert costs[-1] >= search(kernels.KernelByKernel(), problem, machine).best.seconds
    other = [search(kernels.KernelByKernel(tile=(2, 1)), p, machine).best.seconds for p in problems]
    assert np.prod(costs) < np.prod(other)


@pytest.mark.parametrize(
    ("point", "said"),
    [
        (at(64, 1, 16, 4), r"units fit the grid: 64 units x 4 gates x 1 are 256 PCUs, the grid has 192"),
        (at(48, 1, 16, 4), r"units fit the grid: 192 rows of 1 PCUs and \d+ cells of the hub .* has 192"),
        (at(2, 10, 16, 4), "11 vectors cross a cell's border, there are 10 tracks"),
        (at(2, 1, 32, 4), "rv is 32, a PCU has 16 lanes"),
        (at(2, 1, 12, 4), "rv is 12"),
        (at(2, 1, 16, 3), "gates are taken in equal rounds: 3 of 4 gates"),
        (at(0, 1, 16, 4), "hu is 0, expected a whole number from 1 up"),
    ],
)
def test_a_mapping_that_does_not_fit_is_told(point: Point, said: str) -> None:
    problem = Recurrent("lstm", 512, 512, 2, 1)
    weights, x = random_weights(problem), random_input(problem, 2)
    with pytest.raises(EngineError, match=said):
        simulate(LOOP, problem, ROOMY, point, weights, x)


def test_a_machine_too_small_for_anything_is_told() -> None:
    problem = Recurrent("lstm", 512, 512, 2, 1)
    with pytest.raises(EngineError, match=r"two blocks are .* bytes per PCU, its PMUs hold 256"):
        search(loop, problem, replace(ROOMY, pmu_bytes=128))
    with pytest.raises(EngineError, match=r"units fit the grid: .* the grid has 4"):
        search(loop, problem, replace(ROOMY, rows=2, columns=2))
    with pytest.raises(EngineError, match="multiply, tree and sum are three stages, a PCU has 2"):
        loop.space(problem, replace(ROOMY, stages=2)).point(at(2, 1, 16, 4).as_dict())


def test_wrong_arrays_are_told() -> None:
    problem = Recurrent("gru", 8, 4, 3, 2)
    point = at(2, 1, 4, 3)
    weights, x = random_weights(problem), random_input(problem, 3)
    for wrong in (x[:, :1], x.astype(np.float64), np.concatenate([x, x])):
        with pytest.raises(InputError, match=r"expected float32 \[1 to 3 steps, batch 2, 4 inputs\]"):
            simulate(LOOP, problem, ROOMY, point, weights, wrong)
    swapped = [replace(weights[0], weight_ih=weights[0].weight_hh)]
    with pytest.raises(WeightsError, match=r"layer 0 of gru 8.*weight_ih is float32 \[24, 8\], expected"):
        simulate(LOOP, problem, ROOMY, point, swapped, x)


def test_the_grid() -> None:
    placed = grid.cells(5, 4)
    assert len(set(placed)) == 20
    assert placed[0] == (2, 2)
    apart = [max(abs(r - s) + abs(c - d) for r, c in placed[:3] for s, d in placed[:n]) for n in range(3, 21)]
    assert [grid.reach(SpatialMachine(rows=5, columns=4), 3, n) for n in range(3, 21)] == apart


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn"])
@pytest.mark.parametrize(("stages", "function_stages"), [(4, 4), (6, 2), (3, 7)])
def test_a_pipeline_respects_its_stages(kind: str, stages: int, function_stages: int) -> None:
    machine = SpatialMachine(stages=stages, function_stages=function_stages)
    program = cells.PROGRAMS[kind]
    found = cells.pipeline(program, machine)
    needed = sum(function_stages if op.special else 1 for op in program)
    assert needed <= found.pcus * stages
    made: dict[str, int] = {}
    for cycle, op in found.done:
        need = function_stages if op.special else 1
        assert cycle >= need + max((made.get(arg, 0) for arg in op.args), default=0)
        made[op.out] = cycle


def test_the_mapping_in_words() -> None:
    problem = Recurrent("lstm", 256, 256, 4, 1)
    text = "\n".join(loop.mapping(problem, TIGHT, at(8, 2, 16, 2)).describe())
    units = "8 hidden units x 2 gates x 2 PCUs = 32 PCUs"
    for part in (units, "2 rounds", "% on chip", "MB from memory at every step"):
        assert part in text
