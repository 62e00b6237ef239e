"""Complex numbers between memory, where they are pairs, and registers of real and of imaginary parts."""

from llvmlite import ir
from numba.extending import register_jitable

from bslite.kernels.cpu.vector.memory import load_some, store_some
from bslite.kernels.cpu.vector.simd import BYTES, I32, LANES, fma, primitive, vec_t


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
    """Writes ``count`` pairs; if more than lanes, as many as those."""
    store_some(address, lower(re, im), 2 * count)
    if 2 * count > LANES:
        store_some(address + BYTES, upper(re, im), 2 * count - LANES)


@register_jitable
def of_pairs(re, im, far_re, far_im, w_re, w_im, half):
    """What the points k and ``core - k`` of a transform of real numbers are made of, given those of the
    transform z of the pairs of neighbours: with ``far`` from the other end, ``half * (z + conj far)`` and
    ``half * -i w (z - conj far)``, real and imaginary parts.

    Their sum is the one point, the conjugate of their difference the other.
    """
    d_re, d_im = half * (re - far_re), half * (im + far_im)
    t_re, t_im = fma(w_re, d_im, w_im * d_re), w_im * d_im - w_re * d_re
    return half * (re + far_re), half * (im - far_im), t_re, t_im


@register_jitable
def to_pairs(re, im, far_re, far_im, w_re, w_im, scale):
    """The way back, for an inverse: ``scale * (x + conj far)`` and ``scale * i conj(w) (x - conj far)``, of
    points x of a transform of real numbers, make those of the transform of pairs in the same way.
    """
    d_re, d_im = scale * (re - far_re), scale * (im + far_im)
    t_re, t_im = w_im * d_re - w_re * d_im, fma(w_re, d_re, w_im * d_im)
    return scale * (re + far_re), scale * (im - far_im), t_re, t_im
