"""Every op, every case: as the code that a GPU would be given, the PTX, run on the CPU, where
`support.covering` asks for its variants of kernels; else in the simulator.
"""

import functools
from collections.abc import Iterable
from typing import Any

import pytest
from support.check import all_cases
from support.covering import Variant, covering, features, variants
from support.gpu_cases import HALF_ULP, check_on_cuda
from support.ptx_gpu import PtxDriver, ptx  # noqa: F401  (a fixture)
from test_gpu_ops import MOST_FLOPS, flops

from bslite.kernels.cuda.runtime.device import SIMULATED
from bslite.ops import Case, Op
from bslite.plan.core.lowering import CUDA

pytestmark = [pytest.mark.ptx, pytest.mark.skipif(not SIMULATED, reason="there is a GPU to run them on")]
#: Passes over shared memory for each that there must be, where banks are in conflict: the first rounds of a
#: bitonic sort, and a few sums of channels in float64.
CONFLICTS = {"topk_tiles": 2.0, "channel_sums": 2.0}
FEW = 64  # passes that nobody need count
CASES = all_cases(names=sorted(CUDA))


@functools.cache
def launched() -> list[frozenset[Variant]]:
    """The variants of kernels that each case launches."""
    return [variants(*p.values) for p in CASES]


@functools.cache
def compiled() -> set[int]:
    """The cases to run as PTX, by number, those among them that take the simulator long."""
    return covering(launched(), [i for i, p in enumerate(CASES) if flops(*p.values) > MOST_FLOPS])


@pytest.mark.parametrize(
    ("number", "op", "case"), [pytest.param(i, *p.values, id=p.id) for i, p in enumerate(CASES)]
)
def test_three_way(number: int, op: Op, case: Case, request: pytest.FixtureRequest) -> None:
    if number not in compiled():
        check_on_cuda(op, case)
        return
    driver: PtxDriver = request.getfixturevalue("ptx")
    check_on_cuda(op, case, least=HALF_ULP)
    for step, counted in driver.counted:
        passes, fewest = counted.passes
        assert passes <= CONFLICTS.get(step.kernel, 1.25) * fewest + FEW, (step.kernel, passes, fewest)


def test_every_pair_of_constants_is_compiled() -> None:
    def all_of(cases: Iterable[int]) -> set[Any]:
        return {f for i in cases for v in launched()[i] for f in features(v)}

    assert len(compiled()) < len(CASES)
    assert all_of(compiled()) == all_of(range(len(CASES)))
