"""The GEMM microkernel on data that stays in L1, so that only arithmetic takes time."""

from bslite.kernels.contracts.cpu.measure import Peak
from bslite.kernels.cpu.gemm.sweep import call_gemm_sweep
from bslite.kernels.cpu.runtime.compile import offsets, step_kernel
from bslite.kernels.cpu.vector.operand import operand
from bslite.kernels.cpu.vector.simd import LANES, load_int

F = offsets(Peak)
WIDTH = 2  # registers of a panel
DEPTH = 64  # so that A, B and C of a tile take 16 KB


@step_kernel(Peak)
def peak(step, bases, item, scratch):
    """Runs ``repeats`` tiles of the GEMM microkernel on this item's own few kilobytes."""
    depth, rows = load_int(step + F.depth), load_int(step + F.rows)
    a = operand(step, bases, F.data) + item * load_int(step + F.data_item)
    b = a + 4 * rows * depth
    c = b + 4 * depth * WIDTH * LANES
    bias = c + 4 * rows * WIDTH * LANES
    for _ in range(load_int(step + F.repeats)):
        call_gemm_sweep(load_int(step + F.sweep), rows, 1, a, 4 * depth, step + F.offset, 1, depth, b, c,
                        4 * WIDTH * LANES, bias, 0, 0, 0, step + F.lo, LANES, b, 0)  # fmt: skip
