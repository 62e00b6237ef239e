"""One function of up to three broadcast values over memory: arithmetic, comparisons, batch norms, casts.

The step walks the outer axes; the function's own kernel, one per name and compiled when a plan first names
it, walks the two innermost. An operand is contiguous along the innermost axis, or one value.
"""

import functools

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.elementwise import Elementwise, Function
from bslite.kernels.contracts.elementwise import FUNCTIONS, on_integers
from bslite.kernels.contracts.table import complete
from bslite.kernels.cpu.math import binary, cast, compare, integer
from bslite.kernels.cpu.math.activation import call_activation
from bslite.kernels.cpu.runtime.compile import Kernel, caller, makes, offsets, step_kernel
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
    vmax,
    vmin,
)

#: Functions clamped in the store, and those on integer lanes, which are not.
CLAMPED, OTHERS = binary.FUNCTIONS, {**compare.FUNCTIONS, **cast.FUNCTIONS}
#: Functions of one cell at a time, rare and short: the load of a cell, and the function.
CELLS = {on_integers(name): (load_cell, function) for name, function in integer.FUNCTIONS.items()}
CELLS["float_to_int"] = (load_scalar, cast.float_to_int)
complete({**CLAMPED, **OTHERS, **CELLS}, FUNCTIONS, "CPU")
IN_L1 = 4096  # elements that are stored before the activation reads them again

call_function = caller(7)
f = np.float32
E = offsets(Elementwise)


@makes(Function)
@functools.cache
def elementwise_function(name: str) -> Kernel:
    """The kernel of one function over ``lines`` lines of channels, with the strides of the step."""
    if name in CELLS:
        return _by_cells(name)
    function = _clamped(CLAMPED[name]) if name in CLAMPED else _as_it_is(OTHERS[name])

    def apply(x, z, w, y, flag, step, lines):
        channels = load_int(step + E.channels)
        lo, hi = splat(load_scalar(step + E.lo)), splat(load_scalar(step + E.hi))
        whole = channels // LANES
        rest = channels - whole * LANES
        x_inner, z_inner = load_int(step + E.x_inner), load_int(step + E.z_inner)
        w_inner = load_int(step + E.w_inner)
        for _ in range(lines):
            xs, zs, ws = splat(load_scalar(x)), splat(load_scalar(z)), splat(load_scalar(w))
            for block in range(whole):
                at = block * BYTES
                xv = load(x + at) if x_inner else xs
                zv = load(z + at) if z_inner else zs
                wv = load(w + at) if w_inner else ws
                store(y + at, function(xv, zv, wv, lo, hi))
            if rest:
                at = whole * BYTES
                xv = load_first(x + at, rest, f(0.0)) if x_inner else xs
                zv = load_first(z + at, rest, f(0.0)) if z_inner else zs
                wv = load_first(w + at, rest, f(0.0)) if w_inner else ws
                store_first(y + at, function(xv, zv, wv, lo, hi), rest)
            x += load_int(step + E.x3)
            z += load_int(step + E.z3)
            w += load_int(step + E.w3)
            y += load_int(step + E.y3)

    return Kernel(apply, f"elementwise_{name}", 7)


def _clamped(function):
    @register_jitable
    def apply(x, z, w, lo, hi):
        return vmin(hi, vmax(lo, function(x, z, w)))

    return apply


def _as_it_is(function):
    @register_jitable
    def apply(x, z, w, lo, hi):
        return function(x, z, w)

    return apply


def _by_cells(name):
    """The kernel of a function on 32-bit cells, one at a time, computed in 64 bits."""
    read, function = CELLS[name]

    def apply(x, z, w, y, flag, step, lines):
        x_step, z_step = 4 * load_int(step + E.x_inner), 4 * load_int(step + E.z_inner)
        for _ in range(lines):
            for i in range(load_int(step + E.channels)):
                made = function(read(x + i * x_step), read(z + i * z_step), flag)
                if made < -2147483648 or made > 2147483647:
                    raise_flag(flag, made)
                store_cell(y + 4 * i, made)
            x += load_int(step + E.x3)
            z += load_int(step + E.z3)
            y += load_int(step + E.y3)

    return Kernel(apply, f"elementwise_{name}", 7)


@step_kernel(Elementwise)
def elementwise(step, bases, item, scratch):
    """Computes all channels of all (i2, i3) of one (i0, i1)."""
    n1 = load_int(step + E.n1)
    i0, i1 = item // n1, item % n1
    x = operand(step, bases, E.x) + i0 * load_int(step + E.x0) + i1 * load_int(step + E.x1)
    z = operand(step, bases, E.z) + i0 * load_int(step + E.z0) + i1 * load_int(step + E.z1)
    w = operand(step, bases, E.w) + i0 * load_int(step + E.w0) + i1 * load_int(step + E.w1)
    y = operand(step, bases, E.y) + i0 * load_int(step + E.y0) + i1 * load_int(step + E.y1)
    flag = operand(step, bases, E.flag)
    function, activation = load_int(step + E.function), load_int(step + E.activation)
    pixels, channels = load_int(step + E.n3), load_int(step + E.channels)
    x3, z3, w3, y3 = (
        load_int(step + E.x3), load_int(step + E.z3), load_int(step + E.w3), load_int(step + E.y3)
    )  # fmt: skip
    most = pixels
    if activation:
        most = max(1, IN_L1 // channels)
    for i2 in range(load_int(step + E.n2)):
        xs, zs = x + i2 * load_int(step + E.x2), z + i2 * load_int(step + E.z2)
        ws, ys = w + i2 * load_int(step + E.w2), y + i2 * load_int(step + E.y2)
        for i3 in range(0, pixels, most):
            lines = min(most, pixels - i3)
            line = ys + i3 * y3
            call_function(function, xs + i3 * x3, zs + i3 * z3, ws + i3 * w3, line, flag, step, lines)
            if activation:
                call_activation(activation, line, lines, y3, channels, step + E.act_a)
