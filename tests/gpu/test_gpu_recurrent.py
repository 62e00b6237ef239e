"""The recurrent kernel by itself, all steps in one launch or one by one; how layers are cut for GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_simulate import launch
from helpers import Array, assert_three_way

from bslite import reference
from bslite.explore.gpu import GpuMachine
from bslite.explore.problem import GATES, Recurrent
from bslite.kernels.cuda import KERNELS
from bslite.kernels.cuda.device import SIMULATED
from bslite.kernels.cuda.recurrent_cell import GRU, LSTM, RELU, TANH
from bslite.plan.cuda.recurrent_tiles import NARROW, WIDE, choose, launched, tile

OPS = {LSTM: "lstm", GRU: "gru", TANH: "rnn", RELU: "rnn"}
#: Four warps of eight lanes: half of each row is with another warp, sums are folded four at a time.
TILE = {"warps": 4, "lanes": 8, "parts": 2, "rows": 4, "deep": 2, "batch": 2, "chunk": 2}


def noise(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


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
            KERNELS["recurrent"], (-(-hidden // units), -(-batch // constants["batch"])), (32,),
            {**memory, **numbers, "first": first, "stop": stop},
            kind=kind, together=int(at_once), **constants,
        )  # fmt: skip
    return memory["y"].reshape(steps + states, batch, hidden)


def parameters(gates: int, hidden: int, features: int) -> dict[str, Array]:
    k = gates * hidden
    return {
        "weight_ih": noise(1, k, features), "weight_hh": noise(2, k, hidden),
        "bias_ih": noise(3, k), "bias_hh": noise(4, k),
    }  # fmt: skip


@pytest.mark.parametrize("variant", [{}, {"rows": 8, "deep": 1, "parts": 4, "batch": 4, "chunk": 1}], ids=str)
@pytest.mark.parametrize("kind", OPS)
def test_one_launch_or_many(kind: int, variant: dict[str, int]) -> None:
    """As near to float64 as the reference in float32; and the same bits however the steps are launched, in
    one block or in several.
    """
    steps, batch, hidden = 4, 3, 2
    given = parameters(GATES[OPS[kind]], hidden, 5)
    x = noise(0, steps, batch, 5)
    attrs: dict[str, Any] = {"reverse": False, "initial_state": False, "lengths": False}
    attrs |= {"gru": {"reset_after": True}, "rnn": {"activation": "relu" if kind == RELU else "tanh"}}.get(
        OPS[kind], {}
    )
    exact, peer = (reference.call(OPS[kind], [x], given, attrs, t) for t in (np.float64, np.float32))
    stays = run(kind, hidden, hidden, steps, True, x, given, **{**variant, "batch": 4})
    assert_three_way(stays, peer, exact)
    for units in (1, 2):
        assert run(kind, hidden, units, steps, False, x, given, **variant).tobytes() == stays.tobytes()


@pytest.mark.skipif(not SIMULATED, reason="on a GPU none is")
def test_blocks_that_are_lost_are_seen_and_hang_nobody() -> None:
    """Two blocks where only one runs at a time: what the first waits for does not come."""
    given = parameters(4, 4, 3)
    y = run(LSTM, 4, 2, 3, True, noise(0, 3, 1, 3), given)
    assert np.isfinite(y[0, :, :2]).all()
    assert np.isnan(y[1:3]).all()


def test_nan_reaches_what_depends_on_it() -> None:
    given = parameters(3, 3, 2)
    x = noise(0, 4, 2, 2)
    x[2, 0, 1] = np.nan
    y = run(GRU, 3, 1, 4, False, x, given, batch=1, chunk=1)
    bad = np.isnan(y)
    assert bad[2:, 0].all()
    assert bad.sum() == bad[2:, 0].size


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("batch", [1, 4, 16, 40])
@pytest.mark.parametrize("hidden", [1, 50, 256, 512, 1024, 1536, 2816])
@pytest.mark.parametrize("recent", [True, False])
def test_layers_are_cut_so_that_the_kernel_can_take_them(
    kind: str, batch: int, hidden: int, recent: bool
) -> None:
    machine = GpuMachine() if recent else GpuMachine(register_bytes=64 << 10)
    loops = choose(Recurrent(kind, hidden, hidden, 25, batch), machine)
    assert loops is not None
    cut, gates = loops.tile, GATES[kind]
    assert cut.warps // cut.parts * cut.rows >= gates * loops.units
    assert cut.parts * cut.lanes * cut.deep >= hidden
    assert cut.rows * cut.deep <= (WIDE if recent else NARROW)
    assert cut.kernel in KERNELS
    assert loops.units * min(batch, cut.batch) <= cut.warps * cut.lanes
    blocks = -(-hidden // loops.units) * -(-batch // cut.batch)
    assert blocks <= machine.sms or not loops.stays


def test_weights_stay_while_they_fit() -> None:
    machine = GpuMachine()

    def stays(kind: str, hidden: int) -> bool:
        loops = choose(Recurrent(kind, hidden, hidden, 25, 1), machine)
        assert loops is not None
        return loops.stays

    assert stays("lstm", 1024)
    assert stays("gru", 1024)
    assert not stays("gru", 2816)
    assert not stays("lstm", 2048)


def test_states_too_long_for_the_kernel() -> None:
    assert tile(GpuMachine(), 4, 40_000, 1, 1) is None
    assert launched(GpuMachine(), 4, 64, 40_000, 1) is None
