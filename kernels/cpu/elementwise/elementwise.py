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
from bslite.kernels.cpu.math.activation import IN_L1, activate, call_activation
from bslite.kernels.cpu.runtime.compile import Kernel, caller, makes, step_kernel
from bslite.kernels.cpu.runtime.flag import raise_flag
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.memory import (
    load,
    load_cell,
    load_first,
    load_scalar,
    store,
    store_cell,
    store_first,
)
from bslite.kernels.cpu.vector.simd import BYTES, LANES, splat, vmax, vmin

#: Functions clamped in the store, and those on integer lanes, which are not.
CLAMPED, OTHERS = binary.FUNCTIONS, {**compare.FUNCTIONS, **cast.FUNCTIONS}
#: Functions of one cell at a time, rare and short: the load of a cell, and the function.
CELLS = {on_integers(name): (load_cell, function) for name, function in integer.FUNCTIONS.items()}
CELLS["float_to_int"] = (load_scalar, cast.float_to_int)
#: Of these, functions of a register of cells at a time.
ON_LANES = {on_integers(name): function for name, function in integer.ON_LANES.items()}
ON_LANES["float_to_int"] = cast.TO_INT
complete({**CLAMPED, **OTHERS, **CELLS}, FUNCTIONS, "CPU")

call_function = caller(7)
f = np.float32
E = reader(Elementwise)


@makes(Function)
@functools.cache
def elementwise_function(name: str) -> Kernel:
    """The kernel of one function over ``lines`` lines of channels, with the strides of the step."""
    if name in CELLS:
        return _by_cells(name)
    of_three = CLAMPED[name] if name in CLAMPED else OTHERS[name]
    if name in CLAMPED:
        function = register_jitable(lambda x, z, w, lo, hi: vmin(hi, vmax(lo, of_three(x, z, w))))
    else:
        function = register_jitable(lambda x, z, w, lo, hi: of_three(x, z, w))

    def apply(x, z, w, y, flag, step, lines):
        s = E(step, 0)
        channels = s.channels
        lo, hi = splat(s.lo), splat(s.hi)
        whole = channels // LANES
        rest = channels - whole * LANES
        x_inner, z_inner, w_inner = s.x_inner, s.z_inner, s.w_inner
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
            x += s.x3
            z += s.z3
            w += s.w3
            y += s.y3

    return Kernel(apply, f"elementwise_{name}", 7)


def _by_cells(name):
    """The kernel of a function on 32-bit cells, one at a time, computed in 64 bits; of whole registers where
    there is such a function, if all their results fit.
    """
    read, function = CELLS[name]
    on_lanes = name in ON_LANES
    made_of, fits = ON_LANES[name if on_lanes else "float_to_int"]  # of others none is called

    @register_jitable
    def each(x, z, y, x_step, z_step, count, flag):
        for i in range(count):
            made = function(read(x + i * x_step), read(z + i * z_step), flag)
            if made < -2147483648 or made > 2147483647:
                raise_flag(flag, made)
            store_cell(y + 4 * i, made)

    def apply(x, z, w, y, flag, step, lines):
        s = E(step, 0)
        channels, x_step, z_step = s.channels, 4 * s.x_inner, 4 * s.z_inner
        whole = channels // LANES if on_lanes else 0
        done = whole * LANES
        for _ in range(lines):
            xs, zs = splat(load_scalar(x)), splat(load_scalar(z))
            for block in range(whole):
                at = block * BYTES
                xv = load(x + at) if x_step else xs
                zv = load(z + at) if z_step else zs
                if fits(xv, zv):
                    store(y + at, made_of(xv, zv))
                else:
                    each(x + at * (x_step > 0), z + at * (z_step > 0), y + at, x_step, z_step, LANES, flag)
            each(x + done * x_step, z + done * z_step, y + 4 * done, x_step, z_step, channels - done, flag)
            x += s.x3
            z += s.z3
            y += s.y3

    return Kernel(apply, f"elementwise_{name}", 7)


@register_jitable
def _again(source, target, cells, channels):
    """Writes ``channels`` cells to ``target``, those of ``source`` again and again. Returns ``target``."""
    k = 0
    for i in range(channels):
        store_cell(target + 4 * i, load_cell(source + 4 * k))
        k = 0 if k + 1 == cells else k + 1
    return target


@step_kernel(Elementwise)
def elementwise(step, bases, item, scratch):
    """Computes all channels of all (i2, i3) of one (i0, i1)."""
    s = E(step, bases)
    i0, i1 = item // s.n1, item % s.n1
    x = s.x + i0 * s.x0 + i1 * s.x1
    z = s.z + i0 * s.z0 + i1 * s.z1
    w = s.w + i0 * s.w0 + i1 * s.w1
    if s.again0:
        x = _again(x, scratch, s.again0, s.channels)
    if s.again1:
        z = _again(z, scratch + 4 * s.channels, s.again1, s.channels)
    if s.again2:
        w = _again(w, scratch + 8 * s.channels, s.again2, s.channels)
    y = s.y + i0 * s.y0 + i1 * s.y1
    function, activation, flag = s.function, s.activation, s.flag
    pixels, channels, x3, z3, w3, y3 = s.n3, s.channels, s.x3, s.z3, s.w3, s.y3
    most = max(1, IN_L1 // channels) if activation else pixels
    for i2 in range(s.n2):
        xs, zs = x + i2 * s.x2, z + i2 * s.z2
        ws, ys = w + i2 * s.w2, y + i2 * s.y2
        if not function:
            call_activation(activation, xs, ys, pixels, x3, y3, channels, s.act_a_cell)
            continue
        for i3 in range(0, pixels, most):
            lines = min(most, pixels - i3)
            line = ys + i3 * y3
            call_function(function, xs + i3 * x3, zs + i3 * z3, ws + i3 * w3, line, flag, step, lines)
            if activation:
                activate(activation, line, lines, y3, channels, s.act_a_cell)
