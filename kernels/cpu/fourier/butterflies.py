"""Transforms of a few points in registers, as straight code: the steps that longer ones are made of."""

import cmath
import math
from typing import NamedTuple

from llvmlite import ir
from numba import types

from bslite.kernels.cpu.vector.lanes import all_floats
from bslite.kernels.cpu.vector.simd import (
    BYTES,
    F32,
    I64,
    fma_ir,
    i64,
    load_ir,
    pointer,
    primitive,
    splat_ir,
    store_ir,
)

POINT = 2 * BYTES  # of a complex point: a register of real parts, then one of imaginary parts


class Complex(NamedTuple):
    """A register of complex numbers, as LLVM values."""

    re: ir.Value
    im: ir.Value


def _add(builder, a, b):
    return Complex(builder.fadd(a.re, b.re), builder.fadd(a.im, b.im))


def _sub(builder, a, b):
    return Complex(builder.fsub(a.re, b.re), builder.fsub(a.im, b.im))


def _times(builder, z, re, im):
    """``z * (re + i im)``, registers."""
    return Complex(
        fma_ir(builder, z.re, re, builder.fneg(builder.fmul(z.im, im))),
        fma_ir(builder, z.re, im, builder.fmul(z.im, re)),
    )


def _turned(builder, z, part, whole):
    """``z * exp(-2 pi i part / whole)``: quarters and eighths of a turn take fewer operations."""
    part %= whole
    if 8 * part % whole:
        w = cmath.exp(-2j * math.pi * part / whole)
        return _times(builder, z, all_floats(w.real), all_floats(w.imag))
    quarters, eighth = divmod(8 * part // whole, 2)
    if eighth:
        root = all_floats(math.sqrt(0.5))
        z = Complex(
            builder.fmul(builder.fadd(z.re, z.im), root), builder.fmul(builder.fsub(z.im, z.re), root)
        )
    for _ in range(quarters):
        z = Complex(z.im, builder.fneg(z.re))
    return z


def _of_prime(builder, x):
    """The transform of a prime number of points: of sums and differences of those as far from both ends."""
    n = len(x)
    if n == 2:
        return [_add(builder, *x), _sub(builder, *x)]
    half = range(1, n // 2 + 1)
    sums = [_add(builder, x[k], x[n - k]) for k in half]
    differences = [_sub(builder, x[k], x[n - k]) for k in half]
    y = [x[0]] * n
    for u in sums:
        y[0] = _add(builder, y[0], u)
    for j in half:
        re, im, cross_re, cross_im = *x[0], None, None
        for k, u, v in zip(half, sums, differences, strict=True):
            angle = 2 * math.pi * (j * k % n) / n
            cos, sin = all_floats(math.cos(angle)), all_floats(math.sin(angle))
            re, im = fma_ir(builder, u.re, cos, re), fma_ir(builder, u.im, cos, im)
            if cross_re is None:
                cross_re, cross_im = builder.fmul(v.re, sin), builder.fmul(v.im, sin)
            else:
                cross_re = fma_ir(builder, v.re, sin, cross_re)
                cross_im = fma_ir(builder, v.im, sin, cross_im)
        y[j] = Complex(builder.fadd(re, cross_im), builder.fsub(im, cross_re))
        y[n - j] = Complex(builder.fsub(re, cross_im), builder.fadd(im, cross_re))
    return y


def _transform(builder, x):
    """The transform of a few points, taken apart by their least factor."""
    n = len(x)
    factor = next((f for f in range(2, n) if n % f == 0), n)
    if factor == n:
        return _of_prime(builder, x)
    inner = [_transform(builder, x[i::factor]) for i in range(factor)]
    y = [x[0]] * n
    for k in range(n // factor):
        found = _of_prime(builder, [_turned(builder, part[k], i * k, n) for i, part in enumerate(inner)])
        for j, value in enumerate(found):
            y[k + n // factor * j] = value
    return y


def butterfly(points, twiddled):
    """The transform of ``points`` points, as a primitive ``(x, x_by, x_im, y, y_by, y_im, twiddles)``.

    ``x_by``: bytes from a point to the next; ``x_im``: from a point's real part to its imaginary one. Where
    ``twiddled``, all points of the result but the first are times the pairs of numbers at ``twiddles``.
    """

    @primitive(types.void, *[i64] * 7)
    def emit(builder, x, x_by, x_im, y, y_by, y_im, twiddles):
        read = []
        for k in range(points):
            at = builder.add(x, builder.mul(x_by, ir.Constant(I64, k)))
            read.append(Complex(load_ir(builder, at), load_ir(builder, builder.add(at, x_im))))
        for k, z in enumerate(_transform(builder, read)):
            if twiddled and k:
                at = builder.add(twiddles, ir.Constant(I64, 8 * (k - 1)))
                re = builder.load(pointer(builder, at, F32), align=4)
                im = builder.load(pointer(builder, builder.add(at, ir.Constant(I64, 4)), F32), align=4)
                z = _times(builder, z, splat_ir(builder, re), splat_ir(builder, im))
            at = builder.add(y, builder.mul(y_by, ir.Constant(I64, k)))
            store_ir(builder, at, z.re)
            store_ir(builder, builder.add(at, y_im), z.im)

    return emit
