"""`test_vecmath` and `test_vecpairs` in another process, as other processors with AVX-512 compute.

Some pick powers of two from a register and divide, others have longer polynomials and approximate
reciprocals.
"""

import platform

import pytest
from support.process import printed

from bslite.kernels.cpu.vector.target import simd

pytestmark = pytest.mark.processes

#: Processors by LLVM's names: whether they pick, whether they divide.
OTHERS = {"znver4": (True, True), "skylake-avx512": (False, False)}
CODE = """
import pytest
from bslite.kernels.cpu.vector.target import divides, picks_powers
assert (picks_powers(), divides()) == {chosen}
files = ["kernels/test_vecmath.py", "kernels/test_vecpairs.py"]
raise SystemExit(pytest.main(["-q", "-n", "0", "-p", "no:cacheprovider", *files]))
"""


@pytest.mark.parametrize("cpu", OTHERS)
def test_bounds_hold_on_others(cpu: str) -> None:
    if platform.machine().lower() not in ("x86_64", "amd64") or simd().lanes < 16:
        pytest.skip("no registers of 16 lanes")
    if simd().cpu == cpu:
        pytest.skip("this processor's own: test_vecmath runs with them")
    said = printed(CODE.format(chosen=OTHERS[cpu]), NUMBA_CPU_NAME=cpu, NUMBA_CPU_FEATURES="")
    assert "passed" in said.splitlines()[-1], said
