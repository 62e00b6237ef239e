"""Pictures of few channels, plane by plane, become pixels of four bfloat16, of which tiles read windows."""

import numpy as np
from llvmlite import ir
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.rows import PICTURE, Picture
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.flag import raise_flag
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.bfloat16 import ALL, larger, not_finite
from bslite.kernels.cpu.vector.bfloat16 import rounded as cells_of
from bslite.kernels.cpu.vector.memory import load_some, store_some
from bslite.kernels.cpu.vector.simd import BYTES, LANES, VEC, primitive, splat, vec_t

F = reader(Picture)
f = np.float32
PIXEL = 2 * PICTURE  # bytes


def _mixer(first):
    """A function that takes channels 0 and 2 of a register of pixels, and 1 and 3, as cells one after the
    other, and gives half a register of pixels from pixel ``first`` on, their channels side by side.
    """
    places = [
        n for i in range(first, first + LANES // 2) for n in (i, 2 * LANES + i, LANES + i, 3 * LANES + i)
    ]
    order = ir.Constant(ir.VectorType(ir.IntType(32), 2 * LANES), places)

    @primitive(vec_t, vec_t, vec_t)
    def mix(builder, even, odd):
        made = builder.shuffle_vector(builder.bitcast(even, ALL), builder.bitcast(odd, ALL), order)
        return builder.bitcast(made, VEC)

    return mix


_first_pixels, _last_pixels = _mixer(0), _mixer(LANES // 2)


@register_jitable
def _zeros(y, pixels):
    """Writes pixels of zeros; returns the place behind them."""
    end = y + PIXEL * pixels
    for place in range(y, end, BYTES):
        store_some(place, splat(f(0.0)), (end - place) // 4)
    return end


@register_jitable
def _plane(x, channel, channels, apart, left):
    """The next ``left`` numbers of a channel, or zeros where there is no such channel."""
    return load_some(x + channel * apart, left) if channel < channels else splat(f(0.0))


@step_kernel(Picture)
def picture(step, bases, item, scratch):
    """Rounds the lines of an item, and raises the flag if a number has no finite bfloat16."""
    s = F(step, bases)
    seen = splat(f(0.0))
    apart, channels, cols = s.x_channel, s.channels, s.cols
    first = item * s.item_lines
    for number in range(first, min(s.images * s.lines, first + s.item_lines)):
        image, line = number // s.lines, number % s.lines
        x, y = s.x + image * s.x_image + line * s.x_line, s.y + image * s.y_image + line * s.y_line
        y = _zeros(y, s.left)
        for col in range(0, cols, LANES):
            left = cols - col
            even = cells_of(_plane(x, 0, channels, apart, left), _plane(x, 2, channels, apart, left))
            odd = cells_of(_plane(x, 1, channels, apart, left), _plane(x, 3, channels, apart, left))
            seen = larger(larger(seen, even), odd)
            store_some(y, _first_pixels(even, odd), 2 * left)
            store_some(y + BYTES, _last_pixels(even, odd), 2 * left - LANES)
            x += BYTES
            y += PIXEL * min(left, LANES)
        _zeros(y, s.right)
    if not_finite(seen):
        raise_flag(s.flag, 0)
