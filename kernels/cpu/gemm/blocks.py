"""Products with matrices of numbers of a few bits: a panel's weights are widened where they are used.

A token reads all weights of a model once, so their bytes are its time. Few rows widen them in registers
(`block_tile`), many rows a chunk at a time, in scratch memory, over which the tiles of `Conv` go. Both add
the same terms in the same order.
"""

from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.blocks import CELL, Blocks
from bslite.kernels.cpu.gemm.block_tile import call_block_sweep
from bslite.kernels.cpu.gemm.sweep import call_gemm_sweep
from bslite.kernels.cpu.gemm.tiles import AHEAD
from bslite.kernels.cpu.math.activation import activate
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.codes import widening
from bslite.kernels.cpu.vector.memory import load, prefetch
from bslite.kernels.cpu.vector.simd import BYTES, LANES

F = reader(Blocks)


def _chunk_widener(bits, zeros):
    """A function that widens so many blocks of a panel of ``width`` registers, from ``source`` on."""
    widen, held = widening(bits, zeros), CELL // bits

    @register_jitable
    def chunk(source, blocks, block, width, to):
        row = width * BYTES
        for _ in range(blocks):
            cells = source + (1 + zeros) * row
            for v in range(width):
                scale = load(source + v * BYTES)
                zero = load(source + row + v * BYTES) if zeros else scale
                place, target = cells + v * BYTES, to + v * BYTES
                for _ in range(block // held):
                    prefetch(place + AHEAD)
                    widen(place, scale, zero, target, row)
                    place += row
                    target += held * row
            source = cells + block // held * row
            to += block * row

    return chunk


_four, _four_of, _eight, _eight_of = (_chunk_widener(b, z) for b in (4, 8) for z in (False, True))


@register_jitable
def _widen(source, blocks, block, width, bits, zeros, to):
    if bits == 4:
        if zeros:
            _four_of(source, blocks, block, width, to)
        else:
            _four(source, blocks, block, width, to)
    elif zeros:
        _eight_of(source, blocks, block, width, to)
    else:
        _eight(source, blocks, block, width, to)


@step_kernel(Blocks)
def blocks(step, bases, item, scratch):
    """Computes a panel of columns for a band of rows."""
    s = F(step, bases)
    panel, band, bits, zeros = item % s.panels, item // s.panels, s.bits, s.zeros
    tail = panel == s.panels - 1
    width = s.tail if tail else s.width
    sweep, of_few = (s.tail_sweep, s.tail_of_few) if tail else (s.sweep, s.of_few)
    activation, x_row, y_row, terms, block, chunk = s.activation, s.x_row, s.y_row, s.terms, s.block, s.chunk
    first = band * s.band_rows
    count = min(s.rows, first + s.band_rows) - first
    column = panel * s.width * LANES
    last = s.columns - column - (width - 1) * LANES
    block_bytes = (1 + zeros + block * bits // CELL) * width * BYTES
    x, y = s.x + first * x_row, s.y + first * y_row + 4 * column
    weights, bias = s.weights + panel * s.panel_bytes, s.bias + 4 * column
    tiles = (count + s.most - 1) // s.most
    low, high = count // tiles, count % tiles
    tall = high * (low + 1)
    term = 0
    while term < terms:
        used = min(chunk, terms - term)
        held = (used + block - 1) // block
        clamp = s.lo_cell if term + used == terms else s.minus_inf_cell
        after = weights + held * block_bytes
        if count <= s.few:
            call_block_sweep(of_few, count, x, x_row, weights, block, used, y, y_row, bias, term, clamp,
                             last)  # fmt: skip
        else:
            _widen(weights, held, block, width, bits, zeros, scratch)
            if high:
                call_gemm_sweep(sweep, low + 1, high, x, x_row, s.offsets, 1, used, scratch, y, y_row, bias,
                                term, 0, 0, clamp, last, after, 0, 1, 0, 0, 0)  # fmt: skip
            call_gemm_sweep(sweep, low, tiles - high, x + tall * x_row, x_row, s.offsets, 1, used, scratch,
                            y + tall * y_row, y_row, bias, term, 0, 0, clamp, last, after, 0, 1, 0, 0,
                            0)  # fmt: skip
        weights = after
        x += 4 * used
        term += used
    if activation:
        activate(activation, y, count, y_row, min(s.columns - column, width * LANES), s.act_a_cell)
