"""The GEMM microkernel on data that stays in L1, so that only arithmetic takes time."""

from bslite.kernels.contracts.cpu.measure import Peak
from bslite.kernels.cpu.gemm.sweep import call_gemm_sweep
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.simd import LANES

F = reader(Peak)
WIDTH = 2  # registers of a panel
DEPTH = 64  # so that A, B and C of a tile take 16 KB


@step_kernel(Peak)
def peak(step, bases, item, scratch):
    """Runs ``repeats`` tiles of the GEMM microkernel on this item's own few kilobytes."""
    s = F(step, bases)
    depth, rows = s.depth, s.rows
    a = s.data + item * s.data_item
    b = a + 4 * rows * depth
    c = b + 4 * depth * WIDTH * LANES
    bias = c + 4 * rows * WIDTH * LANES
    for _ in range(s.repeats):
        call_gemm_sweep(s.sweep, rows, 1, a, 4 * depth, s.offset_cell, 1, depth, b, c,
                        4 * WIDTH * LANES, bias, 0, 0, 0, s.lo_cell, LANES, b, 0, 1, 0, 0, 0)  # fmt: skip
