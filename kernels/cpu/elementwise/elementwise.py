"""One function of up to three broadcast values over memory: subtraction, powers, comparisons, where.

The step walks the outer axes; the function's own kernel, one per name and compiled when a plan first names
it, walks the two innermost. An operand is contiguous along the innermost axis, or one value.
"""

from __future__ import annotations

import functools

import numpy as np

from bslite.kernels.cpu.math import binary, compare, integer
from bslite.kernels.cpu.math.activation import call_activation
from bslite.kernels.cpu.runtime.compile import Kernel, caller, record, step_kernel
from bslite.kernels.cpu.runtime.flag import raise_flag
from bslite.kernels.cpu.vector.operand import operand
from bslite.kernels.cpu.vector.simd import (
    BYTES,
    LANES,
    load,
    load_cell,
    load_first,
    load_int,
    load_scalar,
    splat,
    store,
    store_cell,
    store_first,
)

FUNCTIONS = {**binary.FUNCTIONS, **compare.FUNCTIONS}
call_function = caller(6)
f = np.float32

E = record(
    "elementwise",
    "x x_at z z_at w w_at y y_at flag flag_at n0 n1 n2 n3 channels "
    "x0 x1 x2 x3 z0 z1 z2 z3 w0 w1 w2 w3 y0 y1 y2 y3 "
    # is the operand contiguous along the channels, or one value?
    "x_inner z_inner w_inner function activation act_a act_b",
)


@functools.cache
def elementwise_function(name: str) -> Kernel:
    """The kernel of one function: lines of channels of the operands, at distances that the step says."""
    if name.startswith("int_"):
        return _integers(name)
    function = FUNCTIONS[name]

    def apply(x, z, w, y, flag, step):
        channels = load_int(step + E.channels)
        whole = channels // LANES
        rest = channels - whole * LANES
        x_inner, z_inner, w_inner = (
            load_int(step + E.x_inner),
            load_int(step + E.z_inner),
            load_int(step + E.w_inner),
        )
        for _ in range(load_int(step + E.n3)):
            xs, zs, ws = splat(load_scalar(x)), splat(load_scalar(z)), splat(load_scalar(w))
            for block in range(whole):
                at = block * BYTES
                xv = load(x + at) if x_inner else xs
                zv = load(z + at) if z_inner else zs
                wv = load(w + at) if w_inner else ws
                store(y + at, function(xv, zv, wv))
            if rest:
                at = whole * BYTES
                xv = load_first(x + at, rest, f(0.0)) if x_inner else xs
                zv = load_first(z + at, rest, f(0.0)) if z_inner else zs
                wv = load_first(w + at, rest, f(0.0)) if w_inner else ws
                store_first(y + at, function(xv, zv, wv), rest)
            x += load_int(step + E.x3)
            z += load_int(step + E.z3)
            w += load_int(step + E.w3)
            y += load_int(step + E.y3)

    return Kernel(apply, f"elementwise_{name}", 6)


def _integers(name):
    """Of 32-bit cells, one at a time in 64 bits: rare, and short where it occurs."""
    function = integer.FUNCTIONS[name.removeprefix("int_")]

    def apply(x, z, w, y, flag, step):
        x_step, z_step = 4 * load_int(step + E.x_inner), 4 * load_int(step + E.z_inner)
        for _ in range(load_int(step + E.n3)):
            for i in range(load_int(step + E.channels)):
                made = function(load_cell(x + i * x_step), load_cell(z + i * z_step), flag)
                if made < -2147483648 or made > 2147483647:
                    raise_flag(flag, made)
                store_cell(y + 4 * i, made)
            x += load_int(step + E.x3)
            z += load_int(step + E.z3)
            y += load_int(step + E.y3)

    return Kernel(apply, f"elementwise_{name}", 6)


@step_kernel("elementwise", E)
def elementwise(step, bases, item, scratch):
    """All channels of all (i2, i3) of one (i0, i1)."""
    n1 = load_int(step + E.n1)
    i0, i1 = item // n1, item % n1
    x = operand(step, bases, E.x) + i0 * load_int(step + E.x0) + i1 * load_int(step + E.x1)
    z = operand(step, bases, E.z) + i0 * load_int(step + E.z0) + i1 * load_int(step + E.z1)
    w = operand(step, bases, E.w) + i0 * load_int(step + E.w0) + i1 * load_int(step + E.w1)
    y = operand(step, bases, E.y) + i0 * load_int(step + E.y0) + i1 * load_int(step + E.y1)
    flag = operand(step, bases, E.flag)
    function, activation = load_int(step + E.function), load_int(step + E.activation)
    y3, pixels, channels = load_int(step + E.y3), load_int(step + E.n3), load_int(step + E.channels)
    for i2 in range(load_int(step + E.n2)):
        yp = y + i2 * load_int(step + E.y2)
        call_function(
            function,
            x + i2 * load_int(step + E.x2),
            z + i2 * load_int(step + E.z2),
            w + i2 * load_int(step + E.w2),
            yp,
            flag,
            step,
        )
        if activation:
            call_activation(activation, yp, pixels, y3, channels, step + E.act_a)
