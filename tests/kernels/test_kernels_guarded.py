"""No kernel reads or writes beyond the caller's arrays: every op's cases with unreadable pages around them.

Run as a script it does so itself, printing each case before it tries it; the test runs it as another process,
which a stray access kills.
"""

import ctypes
import mmap
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from support.check import Array, all_cases, same_specials, single_op_spec
from support.tiles import with_tiles

from bslite import ops, reference
from bslite.engines.common.cells import from_cells, inputs_to_cells
from bslite.engines.cpu import prepare

pytestmark = pytest.mark.processes

PAGE = mmap.PAGESIZE


def guarded(shape: Sequence[int], at_end: bool) -> Array:
    """float32 memory between two pages that must not be touched, up against the second or the first."""
    size = 4 * int(np.prod(shape))
    inside = -(-size // PAGE) * PAGE
    memory = mmap.mmap(-1, inside + 2 * PAGE)
    whole = np.frombuffer(memory, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    for page in (0, PAGE + inside):
        address = ctypes.c_void_p(whole.ctypes.data + page)
        assert libc.mprotect(address, ctypes.c_size_t(PAGE), 0) == 0, ctypes.get_errno()
    start = PAGE + (inside - size if at_end else 0)
    return whole[start : start + size].view(np.float32).reshape(shape)


def main(tiles: bool) -> None:
    if tiles:
        with_tiles(setattr)
    multiply = [n for n, op in ops.REGISTRY.items() if op.kind is ops.Kind.CONTRACTION]
    for param in all_cases(names=multiply if tiles else ()):
        op, case = param.values
        spec, inputs = single_op_spec(op, case)
        want = reference.run(spec, inputs, np.float32)[0]
        for at_end in (True, False):
            for channels_last in (False, True) if any(x.ndim == 4 for x in inputs) else (False,):
                print(f"{op.name}: {case.label}, at end {at_end}, channels last {channels_last}", flush=True)
                copies = []
                for x in inputs_to_cells(spec, inputs):
                    order = (0, 2, 3, 1) if channels_last and x.ndim == 4 else tuple(range(x.ndim))
                    cells = guarded([x.shape[i] for i in order], at_end).view(x.dtype)
                    copy = cells.transpose(np.argsort(order))
                    copy[...] = x
                    copies.append(copy)
                out = guarded(want.shape, at_end)
                prepare(spec, copies, threads=1, layerwise=False).run(copies, [out])
                got = from_cells(out, want.dtype.name)
                assert same_specials(got, want)
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    print("done", flush=True)


@pytest.mark.skipif(sys.platform == "win32", reason="mprotect is POSIX")
@pytest.mark.parametrize("tiles", [False, True], ids=["multiply-adds", "tiles"])
def test_no_stray_access(tiles: bool) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, __file__, *(["tiles"] if tiles else [])]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    last = result.stdout.strip().rpartition("\n")[2]
    assert last == "done", f"exit status {result.returncode} at {last!r}\n{result.stderr[-2000:]}"


if __name__ == "__main__":
    main("tiles" in sys.argv)
