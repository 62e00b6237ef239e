"""A register's lanes in float64, for sums of many numbers that must be exact to float32."""

import operator

from numba import types
from numba.core.datamodel import models
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin, register_model

from bslite.kernels.cpu.vector.across import pairwise
from bslite.kernels.cpu.vector.lanes import DOUBLES
from bslite.kernels.cpu.vector.simd import LANES, VEC, call_llvm, first_lanes, primitive, splat_ir, vec_t


class WideType(types.Type):
    """Numba's type of `LANES` float64 values."""

    def __init__(self) -> None:
        super().__init__(name=f"f64x{LANES}")


wide_t = WideType()


@register_model(WideType)
class WideModel(models.PrimitiveModel):
    """The lanes themselves, not a struct around them."""

    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, DOUBLES)


@primitive(wide_t, vec_t)
def widen(builder, x):
    """The lanes in float64."""
    return builder.fpext(x, DOUBLES)


@primitive(vec_t, wide_t)
def narrow(builder, x):
    """The lanes rounded to float32."""
    return builder.fptrunc(x, VEC)


@primitive(wide_t, types.float64)
def splat_wide(builder, value):
    """All lanes equal to ``value``."""
    return splat_ir(builder, value, DOUBLES)


@primitive(wide_t, wide_t)
def root_wide(builder, x):
    """Square root."""
    return call_llvm(builder, f"llvm.sqrt.v{LANES}f64", DOUBLES, [x])


@primitive(types.float64, wide_t)
def sum_across(builder, x):
    """Sum of the lanes."""
    return pairwise(builder, x, builder.fadd)


@primitive(types.float64, wide_t)
def product_across(builder, x):
    """Product of the lanes."""
    return pairwise(builder, x, builder.fmul)


@infer_global(operator.add)
@infer_global(operator.sub)
@infer_global(operator.mul)
class _WideArithmetic(AbstractTemplate):
    def generic(self, args, kws):
        if len(args) == 2 and all(isinstance(a, WideType) for a in args):
            return signature(wide_t, wide_t, wide_t)
        return None


def _lower(function, opname):
    @lower_builtin(function, WideType, WideType)
    def lower(context, builder, sig, args):
        return getattr(builder, opname)(*args)


_lower(operator.add, "fadd")
_lower(operator.sub, "fsub")
_lower(operator.mul, "fmul")


def _first(builder, new, old, count):
    return builder.select(first_lanes(builder, count), new, old)


@primitive(wide_t, wide_t, wide_t, types.int64)
def first_wide(builder, new, old, count):
    """The first ``count`` lanes of ``new``, the others of ``old``."""
    return _first(builder, new, old, count)


@primitive(vec_t, vec_t, vec_t, types.int64)
def first_of(builder, new, old, count):
    """The first ``count`` lanes of ``new``, the others of ``old``."""
    return _first(builder, new, old, count)
