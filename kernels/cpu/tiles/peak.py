"""The microkernel on tiles again and again, on data that stays in L1: the rate of the unit."""

from bslite.kernels.contracts.cpu.tiles import CONFIG, HEAD, LINE, ROW, SUMS, UNIT
from bslite.kernels.cpu.runtime.compile import Kernel
from bslite.kernels.cpu.tiles.sweep import call_tile_sweep
from bslite.kernels.cpu.tiles.unit import configure, release

STEPS = 2  # blocks of terms: 6 KB of A, 12 KB of B
A_AT = HEAD + LINE  # behind the offsets; rows of tiles that lie across two lines take twice the time
PRODUCTS = 6
PER_BLOCK = 4 * PRODUCTS * STEPS  # products of tiles of one block
BYTES = A_AT + (32 * 3 * LINE) + STEPS * 6 * 1024  # of memory on a line, zeros but for the data


def _peak(sweep, memory, repeats):
    """``repeats`` blocks by the microkernel at address ``sweep``; ``memory`` has `BYTES` bytes."""
    offsets = memory + HEAD
    a = memory + A_AT
    b = a + 32 * 3 * LINE
    configure(memory + CONFIG)
    for _ in range(repeats):
        call_tile_sweep(sweep, 3, memory + UNIT, a, 3 * LINE, offsets, STEPS, b, memory + SUMS, ROW, 0, 0)
    release()


tile_peak = Kernel(_peak, "tile_peak", 3)
