"""Gradients of filters of one channel: every channel stays in its lane."""

import functools

import numpy as np

from bslite.kernels.contracts.cpu.update import DepthwiseUpdate, DepthwiseUpdateSweep
from bslite.kernels.cpu.gemm.update import list_segments
from bslite.kernels.cpu.gemm.update_tile import depthwise_update_tile
from bslite.kernels.cpu.runtime.compile import Kernel, caller, makes, step_kernel
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.memory import store
from bslite.kernels.cpu.vector.simd import BYTES, LANES, splat

call_depthwise_update = caller(10)
f = np.float32
F = reader(DepthwiseUpdate)


@makes(DepthwiseUpdateSweep)
@functools.cache
def depthwise_update_sweep(taps: int) -> Kernel:
    """A kernel of ``taps`` neighbouring taps of one register of channels."""
    tile = depthwise_update_tile(taps)

    def sweep(x, x_col, x_tap, table, count, g, g_col, y, y_tap, lanes):
        tile(x, x_col, x_tap, table, count, g, g_col, y, y_tap, lanes)

    return Kernel(sweep, f"depthwise_update_{taps}", 10)


@step_kernel(DepthwiseUpdate)
def depthwise_update(step, bases, item, scratch):
    """Computes a block of registers of channels, for one part of the windows."""
    s = F(step, bases)
    block, part = item % s.blocks, item // s.blocks
    deep, rows, cols, together = s.deep, s.rows, s.cols, s.together
    taps, y_tap = deep * rows * cols, 4 * s.padded
    first, registers = block * s.block_registers, (s.channels + LANES - 1) // LANES
    end = min(registers, first + s.block_registers)
    y = s.y + part * taps * y_tap
    for tap in range(taps):
        for r in range(first, end):
            store(y + tap * y_tap + r * BYTES, splat(f(0.0)))
    share = part // s.each
    begin = share * s.share + part % s.each * s.part
    stop = min((share + 1) * s.share, begin + s.part)
    while begin < stop:
        last = min(stop, begin + s.chunk)
        for z in range(deep):
            for r in range(rows):
                count = list_segments(s, begin, last, z, r, s.g_col, scratch)
                x = s.x + z * s.x_deep + r * s.x_row
                c = y + (z * rows + r) * cols * y_tap
                for register in range(first, end):
                    at, lanes = register * BYTES, s.channels - register * LANES
                    tap = 0
                    while tap < cols:
                        sweep = s.sweep if cols - tap >= together else s.tail_sweep
                        call_depthwise_update(
                            sweep, x + tap * s.x_tap + at, s.x_col, s.x_tap, scratch, count, s.g + at,
                            s.g_col, c + tap * y_tap + at, y_tap, lanes,
                        )  # fmt: skip
                        tap += together
        begin = last
