"""Copies between a few planes and pixels whose cells lie side by side, a register of pixels at a time."""

from llvmlite import ir
from numba import types

from bslite.kernels.contracts.cpu.moves import Interleave, Weave
from bslite.kernels.cpu.runtime.compile import Kernel, caller, makes, step_kernel
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector import simd
from bslite.kernels.cpu.vector.ir import const
from bslite.kernels.cpu.vector.simd import BYTES, LANES, MASK, VEC, primitive
from bslite.kernels.cpu.vector.weave import unwoven, woven

call_weave = caller(4)
R = reader(Interleave)


@step_kernel(Interleave)
def interleave(step, bases, item, scratch):
    """``y[.., p, c] = x[.., c, p]``, or ``y[.., c, p] = x[.., p, c]``; an item is a block of pixels."""
    s = R(step, bases)
    block, place = item % s.blocks, item // s.blocks
    i0, i1, first = place // s.n1, place % s.n1, block * s.block_pixels
    x = s.source + i0 * s.x0 + i1 * s.x1 + first * s.x_pixel
    y = s.target + i0 * s.y0 + i1 * s.y1 + first * s.y_pixel
    pixels = min(s.block_pixels, s.pixels - first)
    weave, plane, n2, n3, x2, x3, y2, y3 = s.weave, s.plane, s.n2, s.n3, s.x2, s.x3, s.y2, s.y3
    for i2 in range(n2):
        for i3 in range(n3):
            call_weave(weave, x + i2 * x2 + i3 * x3, y + i2 * y2 + i3 * y3, plane, pixels)


@makes(Weave)
def weave(planes, cells, apart):
    """Kernel ``f(x, y, plane, pixels)``: a run of pixels; ``plane``: bytes between the planes."""
    take = _taking_apart if apart else _weaving
    registers = primitive(types.void, *[types.int64] * 3)(lambda *at: take(planes, cells, *at, None))
    some = primitive(types.void, *[types.int64] * 4)(lambda *at: take(planes, cells, *at))
    x_step, y_step = (cells * BYTES, BYTES) if apart else (BYTES, cells * BYTES)
    # What lies behind the last pixel's cells is not read.
    left = 1 if planes < cells else 0

    def sweep(x, y, plane, pixels):
        whole = (pixels - left) // LANES
        for _ in range(whole):
            registers(x, y, plane)
            x += x_step
            y += y_step
        rest = pixels - whole * LANES
        if rest > 0:
            some(x, y, plane, rest)

    return Kernel(sweep, f"{'unweave' if apart else 'weave'}_{planes}_of_{cells}", 4)


def _weaving(planes, cells, builder, x, y, plane, pixels):
    """Writes a register of pixels, or the first ``pixels`` of one; cells beyond the planes stay."""
    found = [_load(builder, _at(builder, x, plane, c), pixels) for c in range(planes)]
    found += [ir.Constant(VEC, ir.Undefined)] * (cells - planes)
    for j, register in enumerate(woven(builder, found)):
        mask = None
        if planes < cells:
            of_plane = [int((j * LANES + lane) % cells < planes) for lane in range(LANES)]
            mask = ir.Constant(MASK, of_plane)
        if pixels is not None:
            within = simd.first_lanes(builder, _cells(builder, pixels, cells, 0, j))
            mask = within if mask is None else builder.and_(mask, within)
        _store(builder, builder.add(y, const(j * BYTES)), register, mask)


def _taking_apart(planes, cells, builder, x, y, plane, pixels):
    """Reads a register of pixels, or the first ``pixels`` of one, and writes their cells to the planes."""
    counts = [
        None if pixels is None else _cells(builder, pixels, cells, cells - planes, j) for j in range(cells)
    ]
    found = [_load(builder, builder.add(x, const(j * BYTES)), counts[j]) for j in range(cells)]
    mask = None if pixels is None else simd.first_lanes(builder, pixels)
    for c, register in enumerate(unwoven(builder, found)[:planes]):
        _store(builder, _at(builder, y, plane, c), register, mask)


def _cells(builder, pixels, cells, behind, register):
    """How many cells of ``pixels`` the run's register ``register`` and those after it hold, without the last
    ``behind``.
    """
    return builder.sub(builder.mul(pixels, const(cells)), const(behind + register * LANES))


def _at(builder, base, stride, index):
    return builder.add(base, builder.mul(stride, const(index)))


def _load(builder, address, count):
    if count is None:
        return simd.load_ir(builder, address)
    empty = ir.Constant(VEC, [0.0] * LANES)
    return simd.masked_load_ir(builder, address, simd.first_lanes(builder, count), empty)


def _store(builder, address, register, mask):
    if mask is None:
        simd.store_ir(builder, address, register)
    else:
        simd.masked_store_ir(builder, address, register, mask)
