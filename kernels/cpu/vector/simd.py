"""Vector registers as Numba values: kernels stay readable Python, and the compiler does not guess the width.

LLVM's loop vectoriser prefers 256-bit vectors on AVX-512 machines and cannot be told otherwise once Numba is
imported; a value of `Vec` *is* one full register (``<16 x float>`` on AVX-512), and arithmetic on it is one
instruction. Addresses are plain int64 byte addresses, so a kernel sees shapes and strides only.

NaN: `vmax` and `vmin` return a NaN in their second operand, so put the data there and the bound first.
"""

import operator

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, register_model

from bslite.kernels.cpu.vector.target import simd

LANES = simd().lanes
BYTES = 4 * LANES  # of one vector register

F32 = ir.FloatType()
I32 = ir.IntType(32)
I64 = ir.IntType(64)
VEC = ir.VectorType(F32, LANES)
MASK = ir.VectorType(ir.IntType(1), LANES)


class VecType(types.Type):
    """Numba's type of one vector register of float32."""

    def __init__(self) -> None:
        super().__init__(name=f"f32x{LANES}")


vec_t = VecType()


@register_model(VecType)
class VecModel(models.PrimitiveModel):
    """The register itself, not a struct around it."""

    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, VEC)


def call_llvm(builder, name, ret, args):
    """Calls an LLVM intrinsic by its full name (llvmlite does not mangle vector types itself)."""
    fn = cgutils.get_or_insert_function(builder.module, ir.FunctionType(ret, [a.type for a in args]), name)
    return builder.call(fn, args)


def pointer(builder, address, to=F32):
    """An int64 byte address as an LLVM pointer."""
    return builder.inttoptr(address, to.as_pointer())


def splat_ir(builder, scalar, vec=VEC):
    """All lanes equal to ``scalar``."""
    one = builder.insert_element(ir.Constant(vec, ir.Undefined), scalar, ir.Constant(I32, 0))
    zeros = ir.Constant(ir.VectorType(I32, vec.count), [0] * vec.count)
    return builder.shuffle_vector(one, ir.Constant(vec, ir.Undefined), zeros)


def load_ir(builder, address):
    """One vector from an address of any alignment."""
    return builder.load(pointer(builder, address, VEC), align=4)


def store_ir(builder, address, value):
    """Stores one vector to an address of any alignment."""
    builder.store(value, pointer(builder, address, VEC), align=4)


def fma_ir(builder, a, b, c):
    """``a*b + c``, fused wherever the target has the instruction."""
    return call_llvm(builder, f"llvm.fmuladd.v{a.type.count}f32", a.type, [a, b, c])


def first_lanes(builder, count):
    """Mask of the first ``count`` (int64) lanes."""
    index = ir.Constant(ir.VectorType(I32, LANES), list(range(LANES)))
    limit = splat_ir(builder, builder.trunc(count, I32), ir.VectorType(I32, LANES))
    return builder.icmp_signed("<", index, limit)


def masked_store_ir(builder, address, value, mask):
    """Stores the lanes of ``value`` that ``mask`` selects; the others' memory is not touched."""
    ptr = pointer(builder, address, VEC)
    fn = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(ir.VoidType(), [VEC, ptr.type, I32, MASK]),
        f"llvm.masked.store.v{LANES}f32.p0",
    )
    builder.call(fn, [value, ptr, ir.Constant(I32, 4), mask])


def masked_load_ir(builder, address, mask, other):
    """Loads the lanes that ``mask`` selects, ``other`` in the rest; unselected memory is not read."""
    ptr = pointer(builder, address, VEC)
    fn = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(VEC, [ptr.type, I32, MASK, VEC]),
        f"llvm.masked.load.v{LANES}f32.p0",
    )
    return builder.call(fn, [ptr, ir.Constant(I32, 4), mask, other])


def prefetch_ir(builder, address, write=False):
    """Prefetches the cache line at an address, which need not be mapped."""
    ptr = pointer(builder, address, VEC)
    fn = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(ir.VoidType(), [ptr.type, I32, I32, I32]), "llvm.prefetch.p0"
    )
    builder.call(fn, [ptr, ir.Constant(I32, int(write)), ir.Constant(I32, 3), ir.Constant(I32, 1)])


def vmax_ir(builder, bound, x):
    """``max``, which returns a NaN in ``x`` (x86's maxps with this operand order)."""
    return builder.select(builder.fcmp_ordered(">", bound, x), bound, x)


def vmin_ir(builder, bound, x):
    """``min``, which returns a NaN in ``x``."""
    return builder.select(builder.fcmp_ordered("<", bound, x), bound, x)


def vmax_nan_ir(builder, a, b):
    """``max``, which returns a NaN in either; of two NaN ``a``, of equal zeros ``b``."""
    # LLVM would merge the two conditions into four operations; the instruction by its name takes two.
    if LANES == 16:
        greater = call_llvm(builder, "llvm.x86.avx512.max.ps.512", VEC, [a, b, ir.Constant(I32, 4)])
    elif LANES == 8:
        greater = call_llvm(builder, "llvm.x86.avx.max.ps.256", VEC, [a, b])
    else:
        greater = vmax_ir(builder, a, b)
    return builder.select(builder.fcmp_ordered("ord", a, a), greater, a)


def divide_ir(builder, x, divisor, inverse):
    """``x / divisor`` rounded once, given ``inverse``, which is ``1 / divisor`` rounded once.

    A quotient corrected by its remainder (Markstein, IBM J. Res. Dev. 34(1), 1990): four instructions, a
    fraction of the time of a division of wide registers. The last bit may differ below the normal range. An
    infinite quotient has no remainder.
    """
    if LANES < 8:  # perhaps no fused multiply-adds, without which the remainder is not exact
        return builder.fdiv(x, divisor)
    quotient = builder.fmul(x, inverse)
    rest = fma_ir(builder, builder.fneg(quotient), divisor, x)
    corrected = fma_ir(builder, rest, inverse, quotient)
    return builder.select(builder.fcmp_unordered("uno", rest, rest), quotient, corrected)


def primitive(result, *params):
    """Decorator: an IR-emitting function ``(builder, *values)`` becomes an intrinsic of this signature."""

    def wrap(emit):
        def codegen(context, builder, sig, args):
            value = emit(builder, *args)
            return context.get_dummy_value() if result is types.void else value

        names = ", ".join(f"p{i}" for i in range(len(params)))
        scope = {"signature": signature, "result": result, "params": params, "codegen": codegen}
        # `intrinsic` reads the Python signature, so a function of the right arity is needed.
        exec(f"def {emit.__name__}(typingctx, {names}): return signature(result, *params), codegen", scope)
        function = scope[emit.__name__]
        function.__doc__ = emit.__doc__
        function.__module__ = emit.__module__
        return intrinsic(function)

    return wrap


i64, f32 = types.int64, types.float32


@primitive(vec_t, i64)
def load(builder, address):
    """The vector at a byte address."""
    return load_ir(builder, address)


@primitive(types.void, i64, vec_t)
def store(builder, address, value):
    """Writes a whole vector."""
    store_ir(builder, address, value)


@primitive(types.void, i64, vec_t, i64)
def store_first(builder, address, value, count):
    """Writes the first ``count`` lanes (clipped to the register)."""
    masked_store_ir(builder, address, value, first_lanes(builder, count))


@primitive(vec_t, i64, i64, f32)
def load_first(builder, address, count, other):
    """Reads the first ``count`` lanes, ``other`` in the rest."""
    return masked_load_ir(builder, address, first_lanes(builder, count), splat_ir(builder, other))


@primitive(vec_t, f32)
def splat(builder, scalar):
    """A vector with all lanes equal to ``scalar``."""
    return splat_ir(builder, scalar)


@primitive(f32, i64)
def load_scalar(builder, address):
    """The float32 at a byte address."""
    return builder.load(pointer(builder, address), align=4)


@primitive(types.void, i64, f32)
def store_scalar(builder, address, value):
    """Writes one float32."""
    builder.store(value, pointer(builder, address), align=4)


@primitive(i64, i64)
def load_int(builder, address):
    """The int64 at a byte address."""
    return builder.load(pointer(builder, address, I64), align=8)


@primitive(types.void, i64, i64)
def store_int(builder, address, value):
    """Writes one int64."""
    builder.store(value, pointer(builder, address, I64), align=8)


@primitive(i64, i64)
def load_cell(builder, address):
    """The int32 at a byte address, as an int64: the engine's form of integers and (0 or 1) bools."""
    return builder.sext(builder.load(pointer(builder, address, I32), align=4), I64)


@primitive(types.void, i64, i64)
def store_cell(builder, address, value):
    """Writes the low 32 bits of an int64."""
    builder.store(builder.trunc(value, I32), pointer(builder, address, I32), align=4)


@primitive(vec_t, vec_t, vec_t, vec_t)
def fma(builder, a, b, c):
    """``a*b + c``."""
    return fma_ir(builder, a, b, c)


@primitive(vec_t, vec_t, vec_t)
def vmax(builder, bound, x):
    """Lane-wise maximum; a NaN in ``x`` gives NaN."""
    return vmax_ir(builder, bound, x)


@primitive(vec_t, vec_t, vec_t)
def vmin(builder, bound, x):
    """Lane-wise minimum; a NaN in ``x`` gives NaN."""
    return vmin_ir(builder, bound, x)


@primitive(vec_t, vec_t, vec_t)
def vmax_nan(builder, a, b):
    """Lane-wise maximum; a NaN in either operand gives NaN (pooling)."""
    return vmax_nan_ir(builder, a, b)


@primitive(vec_t, vec_t, vec_t, vec_t)
def divide(builder, x, divisor, inverse):
    """``x / divisor``, given also ``inverse = 1 / divisor``; see `divide_ir`."""
    return divide_ir(builder, x, divisor, inverse)


@primitive(vec_t, vec_t, vec_t, vec_t, vec_t)
def select_lt(builder, a, b, then, other):
    """``then`` where ``a < b``, ``other`` elsewhere (also where either is NaN)."""
    return builder.select(builder.fcmp_ordered("<", a, b), then, other)


@primitive(vec_t, vec_t)
def vabs(builder, x):
    """Absolute value."""
    return call_llvm(builder, f"llvm.fabs.v{LANES}f32", VEC, [x])


@primitive(vec_t, vec_t)
def minus_abs(builder, x):
    """The negated absolute value, in one operation: it sets the sign."""
    return builder.fneg(call_llvm(builder, f"llvm.fabs.v{LANES}f32", VEC, [x]))


@primitive(vec_t, vec_t)
def vsqrt(builder, x):
    """Square root, correctly rounded."""
    return call_llvm(builder, f"llvm.sqrt.v{LANES}f32", VEC, [x])


@infer_global(operator.add)
@infer_global(operator.sub)
@infer_global(operator.mul)
@infer_global(operator.truediv)
class _VecArithmetic(AbstractTemplate):
    def generic(self, args, kws):
        if len(args) == 2 and all(isinstance(a, VecType) for a in args):
            return signature(vec_t, vec_t, vec_t)
        return None


def _lower_arithmetic(function, opname):
    @lower_builtin(function, VecType, VecType)
    def lower(context, builder, sig, args):
        return getattr(builder, opname)(*args)


for _function, _opname in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _lower_arithmetic(_function, _opname)
