"""The inner loop of the GEMM as PTX: multiply-adds, and 16-byte reads of shared memory, counted."""

import re
from typing import Any

import pytest
from support.ptx.compiler import text_of

from bslite.kernels.cuda import KERNELS

pytestmark = pytest.mark.gpu_compile

INSTRUCTIONS = r"(?:fma.rn|(?:ld|st).(?:shared|local))[a-z0-9.]*"
SAMPLES = [(name, variant) for name in ("gemm_pairs", "gemm") for variant in KERNELS[name].samples]


@pytest.mark.parametrize(("kernel", "variant"), SAMPLES, ids=str)
def test_the_inner_loop(kernel: str, variant: dict[str, Any]) -> None:
    """Eight terms written out: a multiply-add for each of a thread's products, a 16-byte read for every four
    of its operands, no other read of shared memory, and nothing in local memory. A batch norm on the way
    there is a multiply-add for each element that a thread moves.
    """
    pytest.importorskip("cuda.bindings.nvjitlink", reason="the compiler's parts are not installed")
    found = re.findall(INSTRUCTIONS, text_of(kernel, variant))
    block_rows, block_cols, rows, cols = variant["tile"]
    reads = [i for i in found if i.startswith("ld.shared")]
    assert set(reads) == {"ld.shared.v4.f32"}
    assert len(reads) <= 8 * (rows + cols) / 4
    assert not [i for i in found if re.match(r"(ld|st)\.local", i)]
    if variant["code"] in ("identity", "relu"):  # other activations have multiply-adds of their own
        threads = block_rows // rows * (block_cols // cols)
        before = 8 * block_rows // threads if variant["before"] == "affine" else 0
        assert found.count("fma.rn.f32") == 8 * rows * cols + before
