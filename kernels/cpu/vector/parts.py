"""Complex numbers between memory, where they are pairs, and registers of real and of imaginary parts."""

from llvmlite import ir
from numba.extending import register_jitable

from bslite.kernels.cpu.vector.memory import load_some, store_some
from bslite.kernels.cpu.vector.simd import BYTES, I32, LANES, primitive, vec_t


def _picked(*lanes):
    """A primitive: these lanes of two registers, those of the second from LANES on."""

    @primitive(vec_t, vec_t, vec_t)
    def pick(builder, a, b):
        return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, LANES), lanes))

    return pick


#: The first and the second parts of a register's worth of pairs, and the two registers of pairs of parts.
firsts, seconds = _picked(*range(0, 2 * LANES, 2)), _picked(*range(1, 2 * LANES, 2))
lower = _picked(*(LANES * (i % 2) + i // 2 for i in range(LANES)))
upper = _picked(*(LANES * (i % 2) + (LANES + i) // 2 for i in range(LANES)))
#: The lanes of a register backwards; of two, those of the second are none of it.
backwards = _picked(*reversed(range(LANES)))


@register_jitable
def load_pairs(address, count):
    """Real and imaginary parts of pairs of which ``count`` numbers exist; zeros in the lanes behind them."""
    a, b = load_some(address, count), load_some(address + BYTES, count - LANES)
    return firsts(a, b), seconds(a, b)


@register_jitable
def store_pairs(address, re, im, count):
    """Writes ``count`` pairs, at most as many as a register has lanes."""
    store_some(address, lower(re, im), 2 * count)
    if 2 * count > LANES:
        store_some(address + BYTES, upper(re, im), 2 * count - LANES)
