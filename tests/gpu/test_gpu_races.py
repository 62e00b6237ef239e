"""Threads of a block in other orders between barriers: where a barrier is missing, the bits change."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from support.check import all_cases, single_op_spec
from support.noise import uniform
from test_gpu_ops import MOST_FLOPS, flops
from test_gpu_recurrent import parameters, run

import bslite
from bslite.kernels.cuda.recurrent.cell import GRU
from bslite.kernels.cuda.runtime.device import SIMULATED, cuda
from bslite.ops import Case, Kind, Op
from bslite.plan.core.lowering import CUDA

if not SIMULATED:
    pytest.skip("there is a GPU", allow_module_level=True)

from bslite.kernels.cuda.runtime import simulation

pytestmark = pytest.mark.races

EACH = 2  # cases of an op


def backwards(found: list[Any]) -> list[Any]:
    return found[::-1]


def shuffled(found: list[Any]) -> list[Any]:
    return random.Random(len(found)).sample(found, len(found))


ORDERS = {"backwards": backwards, "shuffled": shuffled}


def cases() -> Iterator[Any]:
    """A few of each op whose threads have to do with each other."""
    seen: dict[str, int] = {}
    for case in all_cases(names=sorted(CUDA)):
        op = case.values[0]
        alone = op.kind in (Kind.POINTWISE, Kind.CHANNEL)
        if not alone and seen.get(op.name, 0) < EACH and flops(*case.values) < MOST_FLOPS:
            seen[op.name] = seen.get(op.name, 0) + 1
            yield case


@pytest.mark.parametrize(("op", "case"), list(cases()))
def test_any_order_has_the_same_bits(op: Op, case: Case) -> None:
    spec, inputs = single_op_spec(op, case)
    expected = bslite.run(spec, inputs, backend="cuda")
    for order in ORDERS.values():
        with simulation.in_order(order):
            got = bslite.run(spec, inputs, backend="cuda")
        assert got.tobytes() == expected.tobytes(), order.__name__


#: Weights in shared memory and L2; several rounds, sequences side by side and one after the other.
ROUNDS = {"warps": 4, "lanes": 4, "parts": 2, "rows": 6, "held": 0, "rounds": 2, "near": 1, "far": 1}


@pytest.mark.parametrize("variant", [{"batch": 4, "abreast": 2}, {"batch": 2, "chunk": 1}], ids=str)
def test_recurrent_weights_in_any_order_have_the_same_bits(variant: dict[str, int]) -> None:
    hidden, x = 4, uniform(3, 4, 2)
    given = parameters(3, hidden, 2)

    def answer() -> bytes:
        return run(GRU, hidden, hidden, 3, True, x, given, **ROUNDS, **variant).tobytes()

    expected = answer()
    for order in ORDERS.values():
        with simulation.in_order(order):
            assert answer() == expected, order.__name__


def without_a_barrier(x, y):
    """Turns a block's numbers round through shared memory."""
    shared = cuda.shared.array(8, np.float32)
    t = cuda.threadIdx.x
    shared[t] = x[t]
    y[t] = shared[7 - t]


def with_a_barrier(x, y):
    """As it should be."""
    shared = cuda.shared.array(8, np.float32)
    t = cuda.threadIdx.x
    shared[t] = x[t]
    cuda.syncthreads()
    y[t] = shared[7 - t]


@pytest.mark.parametrize("body", [without_a_barrier, with_a_barrier])
def test_a_missing_barrier_shows(body: Callable[..., None]) -> None:
    """What this file rests on."""
    x, kernel = np.arange(8, dtype=np.float32), cuda.jit(body)
    answers = set()
    for order in (list, *ORDERS.values()):
        y = np.full(8, -1, np.float32)
        with simulation.in_order(order):
            kernel[1, 8](x, y)
        answers.add(y.tobytes())
    assert (len(answers) == 1) == (body is with_a_barrier)
