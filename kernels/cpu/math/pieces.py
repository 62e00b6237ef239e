"""Functions in pieces of their range, each a polynomial, where a register holds the numbers of 16 pieces.

Piece i lies around ``i * step``. A lane picks its piece's coefficients, each from a register of them by one
instruction, and evaluates a polynomial of the distance to the middle: half as many instructions as an
exponential and a quotient, or another polynomial, take. The coefficients have the least relative error
(Lawson's algorithm, in float64) and are rounded to float32.
"""

import numpy as np
from llvmlite import ir

from bslite.kernels.cpu.vector.across import picked_ir
from bslite.kernels.cpu.vector.lanes import ONES, all_floats, ints_of
from bslite.kernels.cpu.vector.simd import LANES, VEC, fma_ir, primitive, vec_t

PIECES = 16
GOES = LANES == PIECES  # whether functions go in pieces on this machine

#: tanh: the coefficients of all pieces, from the constant term on; the first row is what the rounding of that
#: one leaves. From the last piece on it is 1.
TANH_STEP = 19 / 32
TANH = (
    (
        0, -3.123318e-9, -6.1004073e-9, -2.8793886e-8, 2.075798e-8, -1.9391901e-8, 2.105328e-8,
        -1.3919262e-8, -2.5191548e-8, 1.1636493e-9, 2.297442e-8, -1.4827133e-8, 1.6112592e-8,
        2.2221828e-8, -1.2621666e-9, 0,
    ),
    (
        0, 5.325873e-1, 8.298019e-1, 9.4482946e-1, 9.82845e-1, 9.947367e-1, 9.983918e-1, 9.995093e-1,
        9.9985033e-1, 9.9995434e-1, 9.9998605e-1, 9.9999577e-1, 9.999987e-1, 9.999996e-1, 9.999999e-1,
        1,
    ),
    (
        1, 7.163508e-1, 3.114288e-1, 1.0729734e-1, 3.4015648e-2, 1.0498993e-2, 3.2137574e-3,
        9.81237e-4, 2.993625e-4, 9.130991e-5, 2.7848831e-5, 8.493495e-6, 2.5903776e-6, 7.900212e-7,
        2.4094274e-7, 0,
    ),
    (
        -1.780871e-7, -3.8151953e-1, -2.5842458e-1, -1.0137755e-1, -3.3432096e-2, -1.0443735e-2,
        -3.2085907e-3, -9.80756e-4, -2.9931785e-4, -9.130579e-5, -2.7848459e-5, -8.4934645e-6,
        -2.5903755e-6, -7.900213e-7, -2.4094604e-7, 0,
    ),
    (
        -3.3332407e-1, -3.559439e-2, 1.1063261e-1, 6.001872e-2, 2.152001e-2, 6.8890993e-3,
        2.1321774e-3, 6.5319554e-4, 1.9948548e-4, 6.086496e-5, 1.856512e-5, 5.662261e-6, 1.7269144e-6,
        5.2668054e-7, 1.6065249e-7, 0,
    ),
    (
        -1.793189e-4, 1.4614096e-1, -5.640219e-3, -2.2922864e-2, -1.0007668e-2, -3.371479e-3,
        -1.0591388e-3, -3.2592763e-4, -9.9673845e-5, -3.042409e-5, -9.281175e-6, -2.830818e-6,
        -8.633769e-7, -2.6331466e-7, -8.022449e-8, 0,
    ),
    (
        1.3495342e-1, -4.991516e-2, -2.5301946e-2, 4.032778e-3, 3.4186053e-3, 1.2908229e-3,
        4.181834e-4, 1.2985966e-4, 3.9822033e-5, 1.2165261e-5, 3.7120797e-6, 1.1322952e-6,
        3.4529418e-7, 1.0532733e-7, 3.1564408e-8, 0,
    ),
    (
        -7.158688e-3, -3.0796753e-2, 1.6737645e-2, 1.7216441e-3, -7.511843e-4, -3.9435315e-4,
        -1.3720247e-4, -4.3465836e-5, -1.3408495e-5, -4.10355e-6, -1.252837e-6, -3.822114e-7,
        -1.1652529e-7, -3.5563136e-8, -1.1412786e-8, 0,
    ),
    (
        -4.063981e-2, 2.8686907e-2, -3.4439303e-3, -1.7761611e-3, 8.564803e-6, 9.0378824e-5,
        3.7022735e-5, 1.221042e-5, 3.8105936e-6, 1.170244e-6, 3.576401e-7, 1.0914588e-7, 3.3694462e-8,
        1.0130542e-8, 6.6558035e-9, 0,
    ),
)  # fmt: skip
#: ``erfc(x / sqrt(2)) / 2``; from the last piece on it is 0.
TAIL_STEP = 25 / 64
TAIL = (
    (
        5e-1, 3.480372e-1, 2.1732774e-1, 1.20623626e-1, 5.9085123e-2, 2.5402391e-2, 9.54548e-3,
        3.124941e-3, 8.890255e-4, 2.1936033e-4, 4.686989e-5, 8.661188e-6, 1.382827e-6, 1.90592e-7,
        2.2661581e-8, 0,
    ),
    (
        -3.9894226e-1, -3.6963746e-1, -2.9401797e-1, -2.0077226e-1, -1.1769703e-1, -5.923239e-2,
        -2.5590861e-2, -9.491661e-3, -3.0222528e-3, -8.2613324e-4, -1.9386491e-4, -3.9055027e-5,
        -6.7543197e-6, -1.0027926e-6, -1.2780944e-7, 0,
    ),
    (
        -4.5142198e-7, 7.219265e-2, 1.148484e-1, 1.1763916e-1, 9.1951475e-2, 5.7845186e-2,
        2.9989906e-2, 1.2976989e-2, 4.722157e-3, 1.4520673e-3, 3.785768e-4, 8.388208e-5, 1.5823034e-5,
        2.5444313e-6, 3.491552e-7, 0,
    ),
    (
        6.6499405e-2, 5.2202217e-2, 1.909105e-2, -1.2491178e-2, -2.8272485e-2, -2.7784096e-2,
        -1.9162504e-2, -1.0245882e-2, -4.4159116e-3, -1.5646602e-3, -4.6103893e-4, -1.138065e-4,
        -2.3653289e-5, -4.1541075e-6, -6.1814916e-7, 0,
    ),
    (
        -7.773027e-5, -1.6977169e-2, -2.2703275e-2, -1.5888426e-2, -4.329494e-3, 3.8496526e-3,
        6.1850473e-3, 4.8332848e-3, 2.6715153e-3, 1.1424124e-3, 3.9227525e-4, 1.102906e-4,
        2.568925e-5, 4.9952614e-6, 8.1521836e-7, 0,
    ),
    (
        -9.711934e-3, -6.390824e-3, 7.5372896e-4, 5.579806e-3, 5.5099595e-3, 2.5784713e-3,
        -6.613154e-5, -1.1044475e-3, -9.87557e-4, -5.5080967e-4, -2.2739821e-4, -7.364696e-5,
        -1.923982e-5, -4.119414e-6, -7.3021755e-7, 0,
    ),
)  # fmt: skip


def in_pieces(table, step, rest=False):
    """A vector function of x in [0, 15.5 * step): the polynomials of ``table``; NaN gives NaN. ``rest``: its
    first row is what remains of the constant terms, which are added last.
    """
    rows = [np.float32(row).tolist() for row in table]

    @primitive(vec_t, vec_t)
    def emit(builder, x):
        near = fma_ir(builder, x, all_floats(float(np.float32(1 / step))), all_floats(float(ONES)))
        number = builder.fsub(near, all_floats(float(ONES)))
        away = fma_ir(builder, number, all_floats(-step), x)  # exact
        lanes = ints_of(builder, near)  # whose lowest bits are the piece's number
        *terms, value = (picked_ir(builder, ir.Constant(VEC, row), lanes) for row in rows)
        whole = terms.pop(1) if rest else None
        for term in reversed(terms):
            value = fma_ir(builder, value, away, term)
        return value if whole is None else builder.fadd(whole, value)

    return emit
