"""Every op, every case, as the code that a GPU would be given: the PTX, run on the CPU (`ptx`)."""

import pytest
from support.check import all_cases
from support.gpu_cases import HALF_ULP, check_on_cuda
from support.ptx_gpu import PtxDriver, ptx  # noqa: F401  (a fixture)

from bslite.kernels.cuda.runtime.device import SIMULATED
from bslite.ops import Case, Op
from bslite.plan.core.lowering import CUDA

pytestmark = [pytest.mark.ptx, pytest.mark.skipif(not SIMULATED, reason="there is a GPU to run them on")]
#: Passes over shared memory for each that there must be, where banks are in conflict: the first rounds of a
#: bitonic sort, and a few sums of channels in float64.
CONFLICTS = {"topk_tiles": 2.0, "channel_sums": 2.0}
FEW = 64  # passes that nobody need count
CASES = all_cases(names=sorted(CUDA))


@pytest.mark.parametrize(("op", "case"), CASES)
def test_three_way(op: Op, case: Case, ptx: PtxDriver) -> None:  # noqa: F811
    check_on_cuda(op, case, least=HALF_ULP)
    for step, counted in ptx.counted:
        passes, fewest = counted.passes
        assert passes <= CONFLICTS.get(step.kernel, 1.25) * fewest + FEW, (step.kernel, passes, fewest)
