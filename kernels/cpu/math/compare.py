"""Comparisons and logic on registers: bools are int32 lanes, 0 or 1, in the same registers as floats."""

from bslite.kernels.contracts import elementwise as contract
from bslite.kernels.cpu.vector.lanes import INTS, all_floats, all_ints, ints_of, one_of_three, two_of_three
from bslite.kernels.cpu.vector.simd import VEC, primitive, vec_t

#: The names of the orders in LLVM IR.
ORDERS = dict(zip(contract.ORDERS, ("==", "!=", "<", "<=", ">", ">="), strict=True))


def as_lanes(builder, mask):
    """A mask as bools in lanes."""
    return builder.bitcast(builder.zext(mask, INTS), VEC)


def _floats(order):
    def emit(builder, x, z):
        compare = builder.fcmp_unordered if order == "!=" else builder.fcmp_ordered
        return as_lanes(builder, compare(order, x, z))

    return two_of_three(primitive(vec_t, vec_t, vec_t)(emit))


def _ints(order):
    def emit(builder, x, z):
        return as_lanes(builder, builder.icmp_signed(order, ints_of(builder, x), ints_of(builder, z)))

    return two_of_three(primitive(vec_t, vec_t, vec_t)(emit))


def _bits(method):
    def emit(builder, x, z):
        return builder.bitcast(getattr(builder, method)(ints_of(builder, x), ints_of(builder, z)), VEC)

    return two_of_three(primitive(vec_t, vec_t, vec_t)(emit))


def _flipped(mask):
    def emit(builder, x):
        return builder.bitcast(builder.xor(ints_of(builder, x), all_ints(mask)), VEC)

    return one_of_three(primitive(vec_t, vec_t)(emit))


def _test(emit):
    """The function of three registers that tests the first: ``emit`` gives the mask."""
    return one_of_three(primitive(vec_t, vec_t)(lambda builder, x: as_lanes(builder, emit(builder, x))))


def _isinf(builder, x):
    bits = builder.and_(ints_of(builder, x), all_ints(0x7FFFFFFF))
    return builder.icmp_signed("==", bits, all_ints(0x7F800000))


def _equals(value):
    return _test(lambda builder, x: builder.fcmp_ordered("==", x, all_floats(value)))


@primitive(vec_t, vec_t, vec_t, vec_t)
def _where(builder, condition, x, y):
    return builder.select(builder.icmp_signed("!=", ints_of(builder, condition), all_ints(0)), x, y)


FUNCTIONS = {
    **{contract.ordering(name, False): _floats(order) for name, order in ORDERS.items()},
    **{contract.ordering(name, True): _ints(order) for name, order in ORDERS.items()},
    "and": _bits("and_"),
    "or": _bits("or_"),
    "xor": _bits("xor"),
    "not": _flipped(1),
    "not_int": _flipped(-1),
    "where": _where,
    "isnan": _test(lambda builder, x: builder.fcmp_unordered("uno", x, x)),
    "isinf_both": _test(_isinf),
    "isinf_negative": _equals(float("-inf")),
    "isinf_positive": _equals(float("inf")),
    "isinf_neither": one_of_three(
        primitive(vec_t, vec_t)(lambda builder, x: builder.bitcast(all_ints(0), VEC))
    ),
}
