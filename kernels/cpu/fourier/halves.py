"""Transforms of real numbers, an even number of them, as those of half as many pairs of neighbours."""

from numba.extending import register_jitable

from bslite.kernels.cpu.vector.simd import fma


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
