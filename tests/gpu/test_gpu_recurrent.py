"""The recurrent kernel by itself, all steps in one launch or one by one; how layers are cut for GPUs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.check import Array, assert_three_way, single_op_spec
from support.gpu_simulate import launch
from support.noise import uniform
from support.torch_oracle import torch_output

from bslite import ops, reference
from bslite.engines.cuda import engine
from bslite.engines.cuda.simulated import SimulatedDriver
from bslite.explore.gpu import GpuMachine
from bslite.explore.problem import GATES, Recurrent
from bslite.kernels.cuda import KERNELS
from bslite.kernels.cuda.recurrent.cell import GRU, LSTM, RELU, TANH
from bslite.kernels.cuda.runtime.device import SIMULATED
from bslite.plan.cuda import build_plan
from bslite.plan.cuda.recurrent import table as recurrent_table
from bslite.plan.cuda.recurrent.tiles import by_products, choose, launched
from bslite.plan.cuda.tuning import Tuning

pytestmark = pytest.mark.simulator

SMALL = SimulatedDriver.machine
PRODUCTS = Tuning(recurrent_by_products=True)
OPS = {LSTM: "lstm", GRU: "gru", TANH: "rnn", RELU: "rnn"}
#: Four warps of eight lanes: half of each row is with another warp, sums are folded four at a time.
TILE = {
    "warps": 4, "lanes": 8, "parts": 2, "rows": 4, "held": 2, "rounds": 0, "near": 0, "far": 0, "abreast": 1,
    "batch": 2, "chunk": 2,
}  # fmt: skip


def run(kind: int, hidden: int, units: int, steps: int, at_once: bool, x: Array, given: dict[str, Array],
        **variant: int) -> Array:  # fmt: skip
    """A layer without ``recurrent_start``: the state before the first step is written here."""
    batch, states = x.shape[1], 2 if kind == LSTM else 1
    products = x.reshape(-1, x.shape[2]) @ given["weight_ih"].T + given["bias_ih"]
    state = np.zeros((2, batch, hidden, 2), np.float32)
    state.view(np.int32)[1, :, :, 1] = -1
    memory: dict[str, Any] = {
        "weights": given["weight_hh"], "bias": given["bias_hh"], "inputs": products, "state": state,
        "between": state, "cell": np.zeros((batch, hidden), np.float32), "update": products,
        "peepholes": products, "y": np.full((steps + states, batch, hidden), np.nan, np.float32),
        "lengths": np.zeros(batch, np.int32), "flag": np.zeros(4, np.int32),
    }  # fmt: skip
    numbers = {
        "steps": steps, "sequences": batch, "depth": hidden, "width": hidden, "hidden": hidden,
        "units": units, "inputs_row": GATES[OPS[kind]] * hidden, "gate": 0, "y_time": batch * hidden,
        "y_row": hidden, "zero": 0,
    }  # fmt: skip
    constants = {**TILE, "biased": 1, "reverse": 0, "ragged": 0, "peephole": 0, **variant}
    for first in range(1 if at_once else steps):
        stop = steps if at_once else first + 1
        memory = launch(
            KERNELS["recurrent"], (-(-hidden // units), -(-batch // constants["batch"])),
            (constants["warps"] * constants["lanes"],),
            {**memory, **numbers, "first": first, "stop": stop},
            kind=kind, together=int(at_once), **constants,
        )  # fmt: skip
    return memory["y"].reshape(steps + states, batch, hidden)


def parameters(gates: int, hidden: int, features: int) -> dict[str, Array]:
    k = gates * hidden
    return {
        "weight_ih": uniform(k, features, seed=1), "weight_hh": uniform(k, hidden, seed=2),
        "bias_ih": uniform(k, seed=3), "bias_hh": uniform(k, seed=4),
    }  # fmt: skip


def judges(kind: int, x: Array, given: dict[str, Array]) -> tuple[Array, Array]:
    """The reference's answers in float64 and float32."""
    own = {"gru": {"reset_after": True}, "rnn": {"activation": "relu" if kind == RELU else "tanh"}}
    attrs = {"reverse": False, "initial_state": False, "lengths": False, **own.get(OPS[kind], {})}
    exact, peer = (reference.call(OPS[kind], [x], given, attrs, t) for t in (np.float64, np.float32))
    return exact, peer


@pytest.mark.parametrize("variant", [{}, {"rows": 8, "held": 1, "parts": 4, "batch": 4, "chunk": 1}], ids=str)
@pytest.mark.parametrize("kind", OPS)
def test_one_launch_or_many(kind: int, variant: dict[str, int]) -> None:
    """As near to float64 as the reference in float32; and the same bits however the steps are launched, in
    one block or in several.
    """
    steps, batch, hidden = 4, 3, 2
    given = parameters(GATES[OPS[kind]], hidden, 5)
    x = uniform(steps, batch, 5)
    exact, peer = judges(kind, x, given)
    stays = run(kind, hidden, hidden, steps, True, x, given, **{**variant, "batch": 4})
    assert_three_way(stays, peer, exact)
    for units in (1, 2):
        assert run(kind, hidden, units, steps, False, x, given, **variant).tobytes() == stays.tobytes()


#: Columns of a lane in registers, rounds of columns from shared memory and from L2: of two in all.
PLACES = {
    "registers": (2, 0, 0, 0), "shared": (0, 1, 2, 0), "L2": (0, 2, 0, 1), "both": (0, 1, 1, 1),
    "registers and shared": (1, 1, 1, 0), "registers and L2": (1, 1, 0, 1),
}  # fmt: skip
FIVE = {"all": (1, 2, 1, 1), "rounds of L2": (1, 1, 0, 4), "rounds of shared": (1, 4, 1, 0)}


@pytest.mark.parametrize(
    ("kind", "hidden", "shape", "places"),
    [
        (LSTM, 7, {"warps": 4, "lanes": 4, "parts": 1, "rows": 8}, PLACES),
        (GRU, 5, {"warps": 4, "lanes": 4, "parts": 1, "rows": 6}, {n: PLACES[n] for n in ("shared", "L2")}),
        (TANH, 15, {"warps": 8, "lanes": 2, "parts": 2, "rows": 4, "batch": 1, "chunk": 1}, FIVE),
    ],
    ids=["lstm", "gru", "rnn"],
)
def test_weights_anywhere(kind: int, hidden: int, shape: dict[str, int], places: dict[str, Any]) -> None:
    """The same bits wherever a weight is, how many sequences it meets at once, and however steps are
    launched; and right ones.
    """
    steps, batch = 3, 4
    given = parameters(GATES[OPS[kind]], hidden, 2)
    x = uniform(steps, batch, 2)
    exact, peer = judges(kind, x, given)
    answers = set()
    for i, (held, rounds, near, far) in enumerate(places.values()):
        columns = {"held": held, "rounds": rounds, "near": near, "far": far, **shape}
        abreast = 1 if i % 2 or shape.get("batch") else 2
        y = run(kind, hidden, hidden, steps, i != 1, x, given, abreast=abreast, **columns)
        assert_three_way(y, peer, exact)
        answers.add(y.tobytes())
    assert len(answers) == 1


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("lstm", "lengths, backwards, from a state"), ("lstm", "peepholes"), ("gru", "lengths"),
        ("gru", "no bias"), ("gru", "backwards from a state"), ("rnn", "lengths, backwards, from a state"),
        ("rnn", "relu"),
    ],
)  # fmt: skip
def test_products_and_gates(name: str, label: str) -> None:
    """The way of many sequences, for few."""
    op = ops.REGISTRY[name]
    (case,) = [case for case in op.cases() if case.label == label]
    spec, inputs = single_op_spec(op, case)
    (node,) = spec.nodes
    peer = torch_output(op, inputs, spec.node_params(node), node.attrs, np.float32)
    exact = reference.run(spec, inputs, np.float64)[0]
    assert_three_way(engine.run(spec, inputs, tuning=PRODUCTS)[0], peer, exact)
    plan = build_plan(spec, [x.shape for x in inputs], SMALL, tuning=PRODUCTS)
    used = {step.kernel for step in plan.steps}
    assert "recurrent_gates" in used
    assert "recurrent" not in used


def test_gates_join_sums_in_parts() -> None:
    """Of the product's parts, in order; no launch of its own for that."""
    (case,) = [case for case in ops.REGISTRY["lstm"].cases() if case.label == "a long sum"]
    longer = replace(case, inputs=((2, 32, 24),))
    spec, inputs = single_op_spec(ops.REGISTRY["lstm"], longer)
    steps = build_plan(spec, [x.shape for x in inputs], GpuMachine(), tuning=PRODUCTS).steps
    first = next(i for i, step in enumerate(steps) if step.kernel == "recurrent_gates")
    assert steps[first - 1].kernel == "gemm_pairs"
    assert steps[first].record.numbers()["parts"] == steps[first - 1].grid[2] > 1
    hidden, sequences, parts = 3, 2, 3
    products = uniform(parts, sequences, 4 * hidden)
    given: dict[str, Any] = {
        "bias": uniform(4 * hidden, seed=1), "inputs": uniform(sequences, 4 * hidden, seed=2),
        "h": uniform(sequences, hidden, seed=3), "cell": uniform(sequences, hidden, seed=4),
        "peepholes": uniform(3 * hidden, seed=5), "flag": np.zeros(4, np.int32),
        "y": np.zeros((3, sequences, hidden), np.float32), "lengths": np.zeros(sequences, np.int32),
        "step": 0, "steps": 1, "sequences": sequences, "hidden": hidden, "inputs_row": 4 * hidden,
        "y_time": sequences * hidden, "y_row": hidden,
    }  # fmt: skip
    constants = {"kind": LSTM, "biased": 1, "reverse": 0, "ragged": 0, "peephole": 0, "threads": 8}
    answers = [
        launch(KERNELS["recurrent_gates"], (1,), (8,), {**given, "products": p, "parts": len(p)}, **constants)
        for p in (products, ((products[0] + products[1]) + products[2])[None])
    ]
    assert answers[0]["y"].any()
    assert answers[0]["y"].tobytes() == answers[1]["y"].tobytes()


@pytest.mark.skipif(not SIMULATED, reason="on a GPU none is")
def test_blocks_that_are_lost_are_seen_and_hang_nobody() -> None:
    """Two blocks where only one runs at a time: what the first waits for does not come."""
    given = parameters(4, 4, 3)
    y = run(LSTM, 4, 2, 3, True, uniform(3, 1, 3), given)
    assert np.isfinite(y[0, :, :2]).all()
    assert np.isnan(y[1:3]).all()


def test_nan_reaches_what_depends_on_it() -> None:
    given = parameters(3, 3, 2)
    x = uniform(4, 2, 2)
    x[2, 0, 1] = np.nan
    y = run(GRU, 3, 1, 4, False, x, given, batch=1, chunk=1)
    bad = np.isnan(y)
    assert bad[2:, 0].all()
    assert bad.sum() == bad[2:, 0].size


#: Shared memory as on an A100, whose registers keep less.
OLDER = GpuMachine(sms=108, register_bytes=64 << 10, shared_bytes=163 << 10)


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("batch", [1, 4, 40])
@pytest.mark.parametrize("hidden", [1, 50, 512, 1536, 2816])
@pytest.mark.parametrize("machine", [GpuMachine(), OLDER], ids=["recent", "older"])
def test_layers_are_cut_so_that_the_kernel_can_take_them(
    kind: str, batch: int, hidden: int, machine: GpuMachine
) -> None:
    loops = choose(Recurrent(kind, hidden, hidden, 25, batch), machine)
    assert loops is not None
    cut, gates = loops.tile, GATES[kind]
    assert cut.block_rows >= gates * loops.units
    assert cut.longest >= hidden
    assert loops.units * cut.batch <= cut.threads
    assert (cut.chunk % cut.abreast, cut.batch % cut.chunk) == (0, 0)
    kernel = KERNELS[cut.kernel(machine).kernel]
    assert kernel.since == (8, 0) or machine is not OLDER
    assert kernel.dynamic(cut._asdict()) == cut.dynamic
    assert cut.dynamic + cut.static <= machine.shared_bytes
    assert cut.static <= 48 << 10
    assert not cut.dynamic or loops.stays
    assert sum(cut.registers) <= (198 if machine is not OLDER else 64)
    blocks = -(-hidden // loops.units) * -(-batch // cut.batch)
    assert blocks <= machine.sms or not loops.stays


def test_weights_stay_as_far_as_they_fit() -> None:
    """Bytes of an SM's weights in registers, shared memory and L2 (see `kernels.cuda.recurrent.sums`)."""

    def places(kind: str, hidden: int) -> tuple[bool, bool, bool]:
        loops = choose(Recurrent(kind, hidden, hidden, 25, 1), GpuMachine())
        assert loops is not None
        assert loops.stays
        cut = loops.tile
        return cut.held > 0, cut.rounds * cut.near > 0, cut.streamed(hidden) > 0

    assert places("lstm", 1024) == places("gru", 1024) == (True, False, False)
    assert places("gru", 1536) == places("lstm", 1536) == places("gru", 2048) == (True, True, False)
    assert places("lstm", 2048) == places("gru", 2560) == places("gru", 2816) == (True, True, True)


def test_the_documentation_has_the_predictions() -> None:
    page = (Path(__file__).parents[2] / "docs" / "explore.md").read_text()
    for line in recurrent_table.table(GpuMachine()):
        assert line in page


def test_many_sequences_are_a_product() -> None:
    machine = GpuMachine()

    def product_is_cheaper(kind: str, hidden: int, batch: int) -> bool:
        problem = Recurrent(kind, hidden, hidden, 25, batch)
        loops = choose(problem, machine)
        assert loops is not None
        return by_products(problem, machine) < loops.seconds

    assert not product_is_cheaper("lstm", 512, 16)
    assert not product_is_cheaper("lstm", 512, 64)
    assert product_is_cheaper("lstm", 1024, 128)
    assert product_is_cheaper("gru", 2048, 64)


def test_states_too_long_for_the_kernel() -> None:
    assert choose(Recurrent("lstm", 100_000, 1, 1, 1), GpuMachine()) is None
    assert launched(GpuMachine(), 4, 64, 100_000, 1) is None
