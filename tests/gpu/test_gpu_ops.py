"""Every op, every case, through the engine: against float64, as near as torch is."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import all_cases, assert_three_way, single_op_spec
from torch_oracle import torch_output

import bslite
from bslite import ops, reference
from bslite.errors import EngineError
from bslite.kernels.cuda.device import SIMULATED
from bslite.ops import Case, Op
from bslite.plan.cuda.build import LOWERINGS

#: Longer cases take minutes in the simulator: stems, volumes and images of many channels, one of attention's.
#: Their windows and sums are in test_gpu_gemm.py and test_gpu_attention.py at smaller sizes.
MOST_FLOPS = 5e6


@pytest.mark.parametrize(("op", "case"), all_cases(names=sorted(LOWERINGS)))
def test_three_way(op: type[Op], case: Case) -> None:
    spec, inputs = single_op_spec(op, case)
    if SIMULATED and flops(op, case) > MOST_FLOPS:
        pytest.skip("minutes in the simulator")
    exact = reference.run(spec, inputs, np.float64)[0]
    got = bslite.run(spec, inputs, backend="cuda")
    if op.arity[0] == 0:
        peer = reference.run(spec, inputs, np.float32)[0]
    else:
        node = spec.nodes[0]
        peer = torch_output(op, inputs, spec.node_params(node), node.attrs, np.float32)
    assert_three_way(got, peer, exact)


def flops(op: type[Op], case: Case) -> int:
    """Of the op alone."""
    attrs = ops.parse_attrs(op, case.attrs)
    return op.flops(case.inputs, op.shape(case.inputs, case.params, attrs), case.params, attrs)


def test_every_op_has_a_lowering() -> None:
    assert set(ops.REGISTRY) - set(LOWERINGS) == {"dropout"}  # which simplifying drops


def test_ops_without_a_lowering_are_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are listed, whatever else is in the model."""
    for name in ("softmax", "relu"):
        monkeypatch.delitem(LOWERINGS, name)
    graph = bslite.GraphBuilder("net")
    y = graph.add("relu", "r", graph.add("tanh", "t", graph.input("x", (2, 3))))
    spec = graph.build(graph.add("softmax", "s", graph.add("relu", "again", y), axis=1))
    with pytest.raises(EngineError, match=r"no kernel for relu, softmax \(model 'net'\)"):
        bslite.run(spec, np.zeros((2, 3), np.float32), backend="cuda")
