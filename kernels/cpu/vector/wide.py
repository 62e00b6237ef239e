"""A register's lanes in float64, for sums of many numbers that must be exact to float32."""

from numba import types
from numba.core.datamodel import models
from numba.extending import register_model

from bslite.kernels.cpu.vector.across import pairwise
from bslite.kernels.cpu.vector.lanes import DOUBLES
from bslite.kernels.cpu.vector.simd import (
    LANES,
    OPERATIONS,
    VEC,
    arithmetic,
    first_lanes,
    llvm_of_lanes,
    pointer,
    primitive,
    splat_ir,
    vec_t,
)


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


@primitive(wide_t, types.int64)
def load_wide(builder, address):
    """The float64 values at ``address``."""
    return builder.load(pointer(builder, address, DOUBLES), align=8)


@primitive(types.void, types.int64, wide_t)
def store_wide(builder, address, value):
    """Writes all lanes as float64."""
    builder.store(value, pointer(builder, address, DOUBLES), align=8)


@primitive(wide_t, types.float64)
def splat_wide(builder, value):
    """All lanes equal to ``value``."""
    return splat_ir(builder, value, DOUBLES)


root_wide = primitive(wide_t, wide_t)(lambda builder, x: llvm_of_lanes(builder, "sqrt", x))
sum_across = primitive(types.float64, wide_t)(lambda builder, x: pairwise(builder, x, builder.fadd))
product_across = primitive(types.float64, wide_t)(lambda builder, x: pairwise(builder, x, builder.fmul))
arithmetic(WideType, OPERATIONS[:3])


def _first(builder, new, old, count):
    """The first ``count`` lanes of ``new``, the others of ``old``."""
    return builder.select(first_lanes(builder, count), new, old)


first_wide = primitive(wide_t, wide_t, wide_t, types.int64)(_first)
first_of = primitive(vec_t, vec_t, vec_t, types.int64)(_first)
