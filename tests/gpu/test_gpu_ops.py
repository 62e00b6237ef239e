"""Every op, every case, through the engine: against float64, as near as torch is."""

from typing import Any

import numpy as np
import pytest
from support.check import all_cases, single_op_spec
from support.gpu_cases import HALF_ULP, check_on_cuda

import bslite
from bslite import ops
from bslite.engines.cuda.simulated import SimulatedDriver
from bslite.errors import EngineError
from bslite.kernels.cuda import KERNELS
from bslite.kernels.cuda.runtime.device import SIMULATED
from bslite.ops import Case, Op
from bslite.ops.pointwise import IDENTITIES
from bslite.passes import simplify_for_gpu
from bslite.plan.core.lowering import CUDA
from bslite.plan.cuda.build import build_plan

#: In the simulator every sixth case of an op, the first included, and none that takes seconds:
#: test_gpu_ptx_ops.py runs all of them, as compiled or in the simulator.
CASES = all_cases(names=sorted(CUDA))
MOST_FLOPS = 5e5
#: Kernels that no case is large enough for, and where the simulator runs them. `recurrent_wide` is
#: `recurrent` for GPUs that have more registers to a thread.
ELSEWHERE = {
    "test_gpu_index.py": {"gather_pairs", "scatter_sorted", "topk_merge", "topk_tiles"},
    "test_gpu_products.py": {"gemv_pairs"},
    "test_gpu_recurrent.py": {"recurrent_gates", "recurrent_wide"},
    "test_gpu_rows.py": {
        "normalize_join", "normalize_part", "reduce_merge", "reduce_merge_place", "reduce_part",
        "softmax_join", "softmax_part",
    },
}  # fmt: skip


def chosen() -> list[Any]:
    """The cases to run: on a GPU all."""
    if not SIMULATED:
        return CASES
    few = [p for op in CUDA for p in [p for p in CASES if p.values[0].name == op][::6]]
    return [p for p in few if flops(*p.values) <= MOST_FLOPS]


def flops(op: Op, case: Case) -> int:
    """Of the op alone."""
    attrs = ops.parse_attrs(op, case.attrs)
    return op.flops(case.inputs, op.shape(case.inputs, case.params, attrs), case.params, attrs)


@pytest.mark.parametrize(("op", "case"), chosen())
def test_three_way(op: Op, case: Case) -> None:
    check_on_cuda(op, case, least=0.0 if SIMULATED else HALF_ULP)


@pytest.mark.skipif(not SIMULATED, reason="on a GPU they run")
def test_every_kernel_is_simulated() -> None:
    launched = set()
    for p in chosen():
        spec, inputs = single_op_spec(*p.values)
        plan = build_plan(simplify_for_gpu(spec), [x.shape for x in inputs], SimulatedDriver.machine)
        launched |= {step.kernel for step in plan.steps}
    assert set(KERNELS) - launched == set().union(*ELSEWHERE.values())


#: Ops of quantised models, which a GPU does not have yet.
INTEGERS = {"pairs", "quads", "int_conv1d", "int_conv2d", "int_conv3d", "int_linear", "lstm_rounded"}


def test_every_op_has_a_lowering() -> None:
    given = {name for name in ops.REGISTRY if name.endswith("_given")}
    loops = {f"{cell}_{loop}" for cell in ("lstm", "gru", "rnn") for loop in ("steps", "deltas")}
    updates = {f"conv{axes}d_grad_weight" for axes in (1, 2, 3)}
    training = {
        "attention_grad",
        "batch_stats",
        "batch_sums",
        "batch_norm_grad",
        "max_pool_places",
        "pool_grad",
        *loops,
        *updates,
    }
    assert set(ops.REGISTRY) - set(CUDA) == {
        *IDENTITIES,
        "binary_cross_entropy",
        *INTEGERS,
        *given,
        *training,
        "block_linear",
        "grouped_linear",
        "fourier",
        "complex_mul",
    }  # simplify drops the first, the engine writes attention's gradient and the last two as products


def test_ops_without_a_lowering_are_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are listed, whatever else is in the model."""
    for name in ("softmax", "relu"):
        monkeypatch.delitem(CUDA, name)
    graph = bslite.GraphBuilder("net")
    y = graph.add("relu", "r", graph.add("tanh", "t", graph.input("x", (2, 3))))
    spec = graph.build(graph.add("softmax", "s", graph.add("relu", "again", y), axis=1))
    with pytest.raises(EngineError, match=r"no kernel for relu, softmax \(model 'net'\)"):
        bslite.run(spec, np.zeros((2, 3), np.float32), backend="cuda")
