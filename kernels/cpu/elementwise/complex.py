"""Products and sizes of complex numbers, which lie as pairs of neighbours."""

from llvmlite import ir

from bslite.kernels.contracts.cpu.complex import ComplexProduct, PairNorms
from bslite.kernels.cpu.rows.rows import row_kernel
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.memory import load_scalar, load_some, store_some
from bslite.kernels.cpu.vector.parts import load_pairs
from bslite.kernels.cpu.vector.simd import I32, LANES, primitive, splat, vec_t
from bslite.kernels.cpu.vector.wide import narrow, root_wide, widen

P = reader(ComplexProduct)


def _shuffled(*of_pair):
    """A primitive: the lanes of each pair of a register in other places."""
    lanes = [i + j for i in range(0, LANES, 2) for j in of_pair]

    @primitive(vec_t, vec_t)
    def shuffle(builder, x):
        return builder.shuffle_vector(x, x, ir.Constant(ir.VectorType(I32, LANES), lanes))

    return shuffle


exchanged, reals, imaginaries = _shuffled(1, 0), _shuffled(0, 0), _shuffled(1, 1)


@primitive(vec_t, vec_t, vec_t)
def alternating(builder, a, b):
    """The even lanes of a, the odd ones of b."""
    lanes = [i + LANES * (i % 2) for i in range(LANES)]
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, LANES), lanes))


@step_kernel(ComplexProduct)
def complex_product(step, bases, item, scratch):
    """``x`` times the real part of z, and x with parts exchanged times the imaginary one, with its sign.

    Both products are rounded: the sum is the same to the bit if x and z are exchanged.
    """
    s = P(step, bases)
    i0, i1 = item // s.n1, item % s.n1
    x = s.x + i0 * s.x0 + i1 * s.x1
    z = s.z + i0 * s.z0 + i1 * s.z1
    y = s.y + i0 * s.y0 + i1 * s.y1
    x_sign, z_sign = splat(1.0 - 2.0 * s.x_conj), splat(1.0 - 2.0 * s.z_conj)
    straight = alternating(splat(1.0), x_sign)
    across = alternating(splat(0.0) - x_sign * z_sign, z_sign)
    floats, z_inner = 2 * s.pairs, s.z_inner
    x3, z3, y3 = s.x3, s.z3, s.y3
    for i2 in range(s.n2):
        xs, zs, ys = x + i2 * s.x2, z + i2 * s.z2, y + i2 * s.y2
        for _ in range(s.n3):
            by_re, by_im = splat(load_scalar(zs)) * straight, splat(load_scalar(zs + 4)) * across
            for at in range(0, floats, LANES):
                left = floats - at
                a = load_some(xs + 4 * at, left)
                if z_inner:
                    b = load_some(zs + 4 * at, left)
                    by_re, by_im = reals(b) * straight, imaginaries(b) * across
                store_some(ys + 4 * at, a * by_re + exchanged(a) * by_im, left)
            xs, zs, ys = xs + x3, zs + z3, ys + y3


def _norms(s, item, x, y, length):
    root = s.root
    for i in range(0, length, LANES):
        re, im = load_pairs(x + 8 * i, 2 * (length - i))
        re, im = widen(re), widen(im)
        total = re * re + im * im
        store_some(y + 4 * i, narrow(root_wide(total)) if root else narrow(total), length - i)


pair_norms = row_kernel(PairNorms, _norms)
