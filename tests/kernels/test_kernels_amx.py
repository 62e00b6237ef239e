"""The code for AMX, as LLVM makes it for a processor that has it; it is read here, not run."""

import pytest
from support.process import printed

pytestmark = pytest.mark.processes

CPU = {
    "NUMBA_CPU_NAME": "sapphirerapids",
    "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma,+bmi2,+avx512f,+avx512bw,+avx512vl,+avx512dq,+amx-tile,+amx-bf16",
}
CODE = """
import collections, re
from bslite.kernels.cpu import STEP_KERNELS
from bslite.kernels.cpu.tiles import unit
unit.has_tiles = lambda: True  # no system permits what a processor lacks
from bslite.kernels.cpu.tiles.sweep import tile_sweep

def blocks(kernel):
    kernel.address
    for block in re.split(r"^[.\\w]+:", kernel._cfunc._library.get_asm_str(), flags=re.M):
        yield collections.Counter(re.findall(r"^\\s+(\\w+)", block, re.M))

for products in (6, 3, 1):
    most = max(blocks(tile_sweep(products)), key=lambda ops: ops["tdpbf16ps"])
    print(most["tileloadd"] / most["tdpbf16ps"])  # LLVM unrolls some
whole = sum(blocks(STEP_KERNELS["split_conv"]), collections.Counter())
print(whole["ldtilecfg"], whole["tilerelease"])
"""


def test_two_by_two_tiles_take_14_loads_for_24_products(tmp_path: object) -> None:
    """Nothing is stored and loaded again between products, and neighbours share a part."""
    made = printed(CODE, **CPU, BSLITE_CACHE_DIR=str(tmp_path))
    assert [float(x) for x in made.split()] == [14 / 24, 8 / 12, 4 / 4, 1, 1]
