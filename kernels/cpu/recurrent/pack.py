"""Packs a recurrent layer's weights that are values, a block's gates side by side."""

from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.recurrent import PackGates
from bslite.kernels.cpu.gemm.pack import pack_register
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.simd import BYTES, LANES

F = reader(PackGates)


@register_jitable
def _pack_block(s, block, out, out_row):
    """Packs all gates of a block of hidden units."""
    gates, x_row, x_col, depth, gate = s.gates, s.x_row, s.x_col, s.depth, s.gate_bytes
    source, lanes = s.source + block * LANES * x_col, s.hidden - block * LANES
    for g in range(gates):
        pack_register(source + g * gate, x_row, x_col, depth, lanes, out + g * BYTES, out_row)


@step_kernel(PackGates)
def pack_gates(step, bases, item, scratch):
    """Packs a tile of blocks: ``y [tiles][K][tile][gates][lanes]``, zeros in the lanes beyond the units."""
    s = F(step, bases)
    tile, gates, target, depth = s.tile_units, s.gates, s.target, s.depth
    row = tile * gates * BYTES
    for j in range(tile):
        _pack_block(s, item * tile + j, target + item * depth * row + j * gates * BYTES, row)
