"""Comparisons and logic on registers: bools are int32 lanes, 0 or 1, in the same registers as floats."""

from llvmlite import ir
from numba.extending import register_jitable

from bslite.kernels.contracts import elementwise as contract
from bslite.kernels.cpu.vector.lanes import INTS, all_ints, ints_of
from bslite.kernels.cpu.vector.simd import LANES, VEC, primitive, vec_t

#: The names of the orders in LLVM IR.
ORDERS = dict(zip(contract.ORDERS, ("==", "!=", "<", "<=", ">", ">="), strict=True))


def _as_lanes(builder, mask):
    return builder.bitcast(builder.zext(mask, INTS), VEC)


def _comparison(name, integers):
    order = ORDERS[name]

    def emit(builder, x, z):
        if integers:
            return _as_lanes(builder, builder.icmp_signed(order, ints_of(builder, x), ints_of(builder, z)))
        compare = builder.fcmp_unordered if order == "!=" else builder.fcmp_ordered
        return _as_lanes(builder, compare(order, x, z))

    emit.__name__ = f"{name}_{'ints' if integers else 'floats'}"
    return _of_two(primitive(vec_t, vec_t, vec_t)(emit))


def _bits(name, method):
    def emit(builder, x, z):
        return builder.bitcast(getattr(builder, method)(ints_of(builder, x), ints_of(builder, z)), VEC)

    emit.__name__ = f"bits_{name}"
    return _of_two(primitive(vec_t, vec_t, vec_t)(emit))


def _of_two(function):
    @register_jitable
    def apply(x, z, w):
        return function(x, z)

    return apply


def _of_one(function):
    @register_jitable
    def apply(x, z, w):
        return function(x)

    return apply


@primitive(vec_t, vec_t)
def _flip(builder, x):
    return builder.bitcast(builder.xor(ints_of(builder, x), all_ints(-1)), VEC)


@primitive(vec_t, vec_t)
def _opposite(builder, x):
    return builder.bitcast(builder.xor(ints_of(builder, x), all_ints(1)), VEC)


@primitive(vec_t, vec_t, vec_t, vec_t)
def _where(builder, condition, x, y):
    return builder.select(builder.icmp_signed("!=", ints_of(builder, condition), all_ints(0)), x, y)


@primitive(vec_t, vec_t)
def _isnan(builder, x):
    return _as_lanes(builder, builder.fcmp_unordered("uno", x, x))


def _equals(value, name):
    def emit(builder, x):
        return _as_lanes(builder, builder.fcmp_ordered("==", x, ir.Constant(VEC, [value] * LANES)))

    emit.__name__ = name
    return primitive(vec_t, vec_t)(emit)


@primitive(vec_t, vec_t)
def _isinf(builder, x):
    bits = builder.and_(ints_of(builder, x), all_ints(0x7FFFFFFF))
    return _as_lanes(builder, builder.icmp_signed("==", bits, all_ints(0x7F800000)))


@primitive(vec_t, vec_t)
def _never(builder, x):
    return builder.bitcast(all_ints(0), VEC)


FUNCTIONS = {
    **{contract.ordering(name, False): _comparison(name, False) for name in ORDERS},
    **{contract.ordering(name, True): _comparison(name, True) for name in ORDERS},
    "and": _bits("and", "and_"),
    "or": _bits("or", "or_"),
    "xor": _bits("xor", "xor"),
    "not": _of_one(_opposite),
    "not_int": _of_one(_flip),
    "where": _where,
    "isnan": _of_one(_isnan),
    "isinf_both": _of_one(_isinf),
    "isinf_negative": _of_one(_equals(float("-inf"), "is_minus_inf")),
    "isinf_positive": _of_one(_equals(float("inf"), "is_plus_inf")),
    "isinf_neither": _of_one(_never),
}
