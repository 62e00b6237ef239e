"""Every op, every case, as the code that a GPU would be given: the PTX, run on the CPU (`ptx`)."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import all_cases, assert_three_way, single_op_spec
from ptx.compiler import ask
from ptx_gpu import PtxDriver, ptx, variants  # noqa: F401  (a fixture)
from torch_oracle import torch_output

import bslite
from bslite import reference
from bslite.ops import Case, Op
from bslite.passes import simplify
from bslite.plan.cuda.build import LOWERINGS, build_plan

CASES = all_cases(names=sorted(LOWERINGS))


@pytest.fixture(scope="module", autouse=True)
def _compiled_meanwhile(request: pytest.FixtureRequest) -> None:
    """Some 600 variants are compiled by processes beside this one, in the order of the tests."""
    for item in request.session.items:
        if item.path == request.path and hasattr(item, "callspec") and "case" in item.callspec.params:
            spec, inputs = single_op_spec(item.callspec.params["op"], item.callspec.params["case"])
            plan = build_plan(simplify(spec), [x.shape for x in inputs], PtxDriver.machine)
            ask(variants(plan))


@pytest.mark.parametrize(("op", "case"), CASES)
def test_three_way(op: type[Op], case: Case, ptx: PtxDriver) -> None:  # noqa: F811
    spec, inputs = single_op_spec(op, case)
    exact = reference.run(spec, inputs, np.float64)[0]
    got = bslite.run(spec, inputs, backend="cuda")
    if op.arity[0] == 0:
        peer = reference.run(spec, inputs, np.float32)[0]
    else:
        node = spec.nodes[0]
        peer = torch_output(op, inputs, spec.node_params(node), node.attrs, np.float32)
    assert_three_way(got, peer, exact)
