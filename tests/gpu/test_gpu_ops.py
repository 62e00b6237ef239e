"""Every op that has a GPU lowering, every case, through the engine: against float64, as near as torch is."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import all_cases, assert_three_way, single_op_spec
from torch_oracle import torch_output

import bslite
from bslite import reference
from bslite.explore.problem import GATES
from bslite.kernels.cuda.device import SIMULATED
from bslite.ops import Case, Op
from bslite.plan.cuda.build import LOWERINGS

#: Recurrent layers with more parameters take minutes in the simulator: see test_gpu_recurrent.py.
MOST = 200_000


@pytest.mark.parametrize(("op", "case"), all_cases(names=sorted(LOWERINGS)))
def test_three_way(op: type[Op], case: Case) -> None:
    spec, inputs = single_op_spec(op, case)
    if {node.op for node in spec.nodes} - set(LOWERINGS):
        pytest.skip("needs another op that has no lowering yet")
    if op.name in GATES and SIMULATED and sum(p.size for p in spec.params.values()) > MOST:
        pytest.skip("minutes in the simulator")
    exact = reference.run(spec, inputs, np.float64)[0]
    got = bslite.run(spec, inputs, backend="cuda")
    if op.arity[0] == 0:
        peer = reference.run(spec, inputs, np.float32)[0]
    else:
        node = spec.nodes[0]
        peer = torch_output(op, inputs, spec.node_params(node), node.attrs, np.float32)
    assert_three_way(got, peer, exact)
