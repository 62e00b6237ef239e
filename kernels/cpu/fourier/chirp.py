"""Fourier transforms of lengths with large prime factors, as a convolution with a chirp (Bluestein, 1970)."""

from numba.extending import register_jitable

from bslite.kernels.cpu.fourier.butterflies import POINT
from bslite.kernels.cpu.fourier.passes import passes
from bslite.kernels.cpu.vector.memory import load, load_scalar, store
from bslite.kernels.cpu.vector.simd import BYTES, fma, splat


@register_jitable
def _times(at, count, numbers, swap_in, swap_out):
    """Multiplies points by a complex number each; the parts are exchanged before, or after."""
    for k in range(count):
        here = at + POINT * k
        re, im = load(here), load(here + BYTES)
        if swap_in:
            re, im = im, re
        w_re, w_im = splat(load_scalar(numbers + 8 * k)), splat(load_scalar(numbers + 8 * k + 4))
        re, im = re * w_re - im * w_im, fma(re, w_im, im * w_re)
        if swap_out:
            re, im = im, re
        store(here, re)
        store(here + BYTES, im)


@register_jitable
def chirped(first, second, core, padded, radices, twiddles, chirp, work, swap):
    """The address of the transform of ``core`` points at ``first``, which is lost: there or in ``second``.

    With ``n k = (n**2 + k**2 - (k - n)**2) / 2`` it is a convolution, which transforms of ``padded`` points
    compute. ``chirp``: ``exp(-pi i n**2 / core)`` for n < core, then the transform of its conjugate over
    ``padded``. ``swap``: the inverse.
    """
    _times(first, core, chirp, swap, False)
    for k in range(2 * core, 2 * padded):
        store(first + BYTES * k, splat(0.0))
    at = passes(first, POINT, BYTES, padded, radices, twiddles, second, first, work, 0)
    _times(at, padded, chirp + 8 * core, False, False)
    other = first if at == second else second
    at = passes(at + BYTES, POINT, -BYTES, padded, radices, twiddles, other, at, work, 1)
    _times(at, core, chirp, False, swap)
    return at
