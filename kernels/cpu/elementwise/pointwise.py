"""Elementwise work over memory: per-channel affine (batch norm), sum or product of two values, activations.

One record covers ``y = activation(clamp((x * scale + shift) (+|*) z))`` over up to five axes, the innermost
contiguous in x and y. Anything that is not there costs nothing.
"""

from __future__ import annotations

from bslite.kernels.cpu.math.activation import call_activation
from bslite.kernels.cpu.runtime.compile import record, step_kernel
from bslite.kernels.cpu.vector.operand import operand
from bslite.kernels.cpu.vector.partial import load_some
from bslite.kernels.cpu.vector.simd import (
    BYTES,
    LANES,
    fma,
    load,
    load_int,
    load_scalar,
    splat,
    store,
    store_first,
    vmax,
    vmin,
)

F = record(
    "pointwise",
    "x x_at y y_at z z_at scale scale_at shift shift_at "
    # op: 0 none, 1 add z, 2 multiply by z; z_inner: is z contiguous along the channels, or one value?
    "n0 n1 n2 n3 channels x0 x1 x2 x3 y0 y1 y2 y3 z0 z1 z2 z3 z_inner op affine lo hi activation act_a act_b",
)


@step_kernel("pointwise", F)
def pointwise(step, bases, item, scratch):
    """All channels of all (i2, i3) of one (i0, i1)."""
    n1 = load_int(step + F.n1)
    i0, i1 = item // n1, item % n1
    x = operand(step, bases, F.x) + i0 * load_int(step + F.x0) + i1 * load_int(step + F.x1)
    y = operand(step, bases, F.y) + i0 * load_int(step + F.y0) + i1 * load_int(step + F.y1)
    z = operand(step, bases, F.z) + i0 * load_int(step + F.z0) + i1 * load_int(step + F.z1)
    scale, shift = operand(step, bases, F.scale), operand(step, bases, F.shift)
    n2, n3, channels = load_int(step + F.n2), load_int(step + F.n3), load_int(step + F.channels)
    op, affine, z_inner = load_int(step + F.op), load_int(step + F.affine), load_int(step + F.z_inner)
    lo, hi = splat(load_scalar(step + F.lo)), splat(load_scalar(step + F.hi))
    activation = load_int(step + F.activation)
    blocks = (channels + LANES - 1) // LANES
    last = channels - (blocks - 1) * LANES
    for i2 in range(n2):
        for i3 in range(n3):
            xp = x + i2 * load_int(step + F.x2) + i3 * load_int(step + F.x3)
            yp = y + i2 * load_int(step + F.y2) + i3 * load_int(step + F.y3)
            zp = z + i2 * load_int(step + F.z2) + i3 * load_int(step + F.z3)
            z_all = splat(load_scalar(zp))
            for block in range(blocks):
                at = block * BYTES
                v = load_some(xp + at, channels - block * LANES)
                if affine:
                    v = fma(v, load(scale + at), load(shift + at))
                if op:
                    w = load_some(zp + at, channels - block * LANES) if z_inner else z_all
                    v = v + w if op == 1 else v * w
                v = vmin(hi, vmax(lo, v))
                if block < blocks - 1:
                    store(yp + at, v)
                else:
                    store_first(yp + at, v, last)
            if activation:
                call_activation(activation, yp, 1, 0, channels, step + F.act_a)
