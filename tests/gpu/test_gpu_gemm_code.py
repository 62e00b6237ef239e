"""The inner loop of the GEMM as PTX: multiply-adds, and 16-byte reads of shared memory, counted."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

CODE = """
import json, re, sys
from bslite.kernels.cuda import KERNELS
for name in ("gemm_pairs", "gemm"):
    for variant in KERNELS[name].samples:
        ptx = KERNELS[name].ptx((9, 0), **variant)
        found = re.findall(r"(?:fma.rn|(?:ld|st).(?:shared|local))[a-z0-9.]*", ptx)
        print(json.dumps([dict(variant), found]))
"""


@pytest.fixture(scope="module")
def instructions() -> list[tuple[dict[str, Any], list[str]]]:
    """Of each sample of both kernels: its constants and its instructions of these kinds."""
    pytest.importorskip("cuda.bindings.nvjitlink", reason="the compiler's parts are not installed")
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_ENABLE_CUDASIM"}
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def test_the_inner_loop(instructions: list[tuple[dict[str, Any], list[str]]]) -> None:
    """Eight terms written out: a multiply-add for each of a thread's products, a 16-byte read for every four
    of its operands, no other read of shared memory, and nothing in local memory. A batch norm on the way
    there is a multiply-add for each element that a thread moves.
    """
    assert instructions
    for variant, found in instructions:
        block_rows, block_cols, rows, cols = variant["tile"]
        assert found.count("ld.shared.v4.f32") == 8 * (rows + cols) / 4, variant
        assert len([i for i in found if i.startswith("ld.shared")]) == 8 * (rows + cols) / 4, variant
        assert not [i for i in found if re.match(r"(ld|st)\.local", i)], variant
        if variant["code"] <= 1:  # other activations have multiply-adds of their own
            threads = block_rows // rows * (block_cols // cols)
            before = 8 * block_rows // threads if variant["before"] == "affine" else 0
            assert found.count("fma.rn.f32") == 8 * rows * cols + before, variant
