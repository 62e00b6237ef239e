"""The code for AMX, as LLVM makes it for a processor that has it: read, and run by a handler of signals."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
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
from bslite.kernels.contracts.cpu.tiles import TileSweep
from bslite.kernels.cpu.tiles.sweep import tile_sweep

def blocks(kernel):
    kernel.address
    for block in re.split(r"^[.\\w]+:", kernel._cfunc._library.get_asm_str(), flags=re.M):
        yield collections.Counter(re.findall(r"^\\s+(\\w+)", block, re.M))

for products, b_parts in ((6, 3), (3, 2), (1, 1), (6, 2), (6, 1)):
    of_four = 4 * len(TileSweep(products, b_parts).pairs)
    found = [ops for ops in blocks(tile_sweep(products, b_parts)) if ops["tdpbf16ps"] >= of_four]
    most = max(found, key=lambda ops: ops["tdpbf16ps"] / ops["tileloadd"])  # two by two tiles
    rounds = most["tdpbf16ps"] // of_four  # of an unrolled loop
    print(most["tdpbf16ps"] / rounds, most["tileloadd"] / rounds, most["tilestored"])
whole = sum(blocks(STEP_KERNELS["split_conv"]), collections.Counter())
print(whole["ldtilecfg"], whole["tilerelease"])
"""


def test_two_by_two_tiles_take_14_loads_for_24_products(tmp_path: object) -> None:
    """Nothing is stored and loaded again between products, and neighbours share a part."""
    made = printed(CODE, **CPU, BSLITE_CACHE_DIR=str(tmp_path))
    assert made.splitlines() == ["24.0 14.0 0", "12.0 8.0 0", "4.0 4.0 0", "20.0 12.0 0", "12.0 8.0 0", "1 1"]


@pytest.mark.skipif(not sys.platform.startswith("linux") or not shutil.which("cc"), reason="no C compiler")
@pytest.mark.skipif(not llvm.get_host_cpu_features().get("avx2"), reason="the handler wants AVX2")
@pytest.mark.skipif(
    bool(llvm.get_host_cpu_features().get("amx-bf16")), reason="here the tests of tiles run it themselves"
)
def test_layers_on_tiles_by_the_unit_s_instructions(tmp_path: object) -> None:
    """`test_kernels_tiles` again, each instruction carried out by a handler of signals."""
    chosen = [
        "kernels/test_kernels_tiles.py",
        "engine/test_unit.py",
        "-k",
        "not (test_cases_of_ops or silu or residual or added)",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "support.amx_traps", *chosen],
        cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:]
    (products,) = re.findall(r"'product': (\d+)", done.stdout)
    assert int(products) > 100_000
