"""Every op, every case, as the code that a GPU would be given: the PTX, run on the CPU (`ptx`)."""

from __future__ import annotations

import pytest
from gpu_cases import HALF_ULP, check_on_cuda
from helpers import all_cases, single_op_spec
from ptx.compiler import ask
from ptx_gpu import PtxDriver, ptx, variants  # noqa: F401  (a fixture)

from bslite.kernels.cuda.device import SIMULATED
from bslite.ops import Case, Op
from bslite.passes import simplify
from bslite.plan.cuda.build import LOWERINGS, build_plan

pytestmark = pytest.mark.skipif(not SIMULATED, reason="there is a GPU to run them on")
#: Passes over shared memory for each that there must be, where banks are in conflict: the first rounds of a
#: bitonic sort, and a few sums of channels in float64.
CONFLICTS = {"topk_tiles": 2.0, "channel_sums": 2.0}
FEW = 64  # passes that nobody need count
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
    check_on_cuda(op, case, least=HALF_ULP)
    for step, counted in ptx.counted:
        passes, fewest = counted.passes
        assert passes <= CONFLICTS.get(step.kernel, 1.1) * fewest + FEW, (step.kernel, passes, fewest)
