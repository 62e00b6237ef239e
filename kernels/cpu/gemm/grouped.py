"""Products of groups of rows with a matrix each, where the groups' ends are known only while running."""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.grouped import Grouped
from bslite.kernels.cpu.gemm.sweep import call_gemm_sweep
from bslite.kernels.cpu.gemm.tile import UNROLL
from bslite.kernels.cpu.gemm.tiles import FEW, LINE, PREFETCHES
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.memory import load_cell, store_some
from bslite.kernels.cpu.vector.simd import LANES, splat

F = reader(Grouped)
f = np.float32


@register_jitable
def rows_of(ends, step, group, groups, rows):
    """The first and past-the-last row of a group; ``group`` may be ``groups``: what lies behind them all."""
    first = 0
    for g in range(group):
        first = max(first, min(rows, load_cell(ends + g * step)))
    if group == groups:
        return first, rows
    return first, max(first, min(rows, load_cell(ends + group * step)))


@step_kernel(Grouped)
def grouped(step, bases, item, scratch):
    """Computes a block of columns for the rows of one group."""
    s = F(step, bases)
    groups, blocks, x_row, y_row = s.groups, s.blocks, s.x_row, s.y_row
    group, block = item // blocks, item % blocks
    first, last = rows_of(s.ends, s.end_step, group, groups, s.rows)
    count = last - first
    if count <= 0:
        return
    width, panels, columns = s.width, s.panels, s.columns
    first_panel, last_panel = block * s.block_panels, min(panels, (block + 1) * s.block_panels)
    x, y = s.x + first * x_row, s.y + first * y_row
    if group == groups:
        for panel in range(first_panel, last_panel):
            for v in range(width):
                column = (panel * width + v) * LANES
                for i in range(count):
                    store_some(y + i * y_row + 4 * column, splat(f(0.0)), columns - column)
        return
    taps, chunk_taps, depth, offsets = s.taps, s.chunk_taps, s.depth, s.offsets
    register = s.register_bytes
    weights = s.weights + group * s.group_bytes
    tiles = (count + s.most - 1) // s.most
    low, high = count // tiles, count % tiles
    tall = high * (low + 1)
    for panel in range(first_panel, last_panel):
        tail = panel == panels - 1
        vecs = s.tail if tail else width
        sweep = s.tail_sweep if tail else s.sweep
        column = panel * width * LANES
        lanes = min(columns - column, vecs * LANES) - (vecs - 1) * LANES
        bias = s.bias + 4 * column
        w = weights + panel * width * register * taps * depth
        c = y + 4 * column
        tap = 0
        while tap < taps:
            used = min(chunk_taps, taps - tap)
            # each tile fetches a part of what comes next in memory, mostly the next panel
            ahead = w + used * depth * vecs * register
            share = used * (depth // UNROLL) * PREFETCHES * LINE
            if tiles <= FEW:
                ahead, share = 0, 0  # its own
            if high:
                call_gemm_sweep(sweep, low + 1, high, x, x_row, offsets + 8 * tap, used, depth, w, c, y_row,
                                bias, tap, 0, 0, s.lo_cell, lanes, ahead, share, 1, 0, 0, 0)  # fmt: skip
            call_gemm_sweep(sweep, low, tiles - high, x + tall * x_row, x_row, offsets + 8 * tap, used, depth,
                            w, c + tall * y_row, y_row, bias, tap, 0, 0, s.lo_cell, lanes,
                            ahead + high * share, share, 1, 0, 0, 0)  # fmt: skip
            w += used * depth * vecs * register
            tap += used
