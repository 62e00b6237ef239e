"""Vector registers as Numba values: kernels stay readable Python, and the compiler does not guess the width.

LLVM's loop vectoriser prefers 256-bit vectors on AVX-512 machines and cannot be told otherwise once Numba is
imported; a value of `Vec` *is* one full register (``<16 x float>`` on AVX-512), and arithmetic on it is one
instruction. Addresses are plain int64 byte addresses, so a kernel sees shapes and strides only.

NaN: `vmax` and `vmin` return a NaN in their second operand, so put the data there and the bound first.
"""

import operator

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, register_model

from bslite.kernels.cpu.vector.target import simd

# Numba links a function into its callers as its code generation has left it, and LLVM optimises it again.
# Addresses that code generation had made offsets from a null pointer would then be undefined, and stores to
# them vanish (decision 031). With this, they stay integers.
llvm.set_option("", "-addr-sink-using-gep=0")

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
        builder.module, ir.FunctionType(VEC, [ptr.type, I32, MASK, VEC]), f"llvm.masked.load.v{LANES}f32.p0"
    )
    return builder.call(fn, [ptr, ir.Constant(I32, 4), mask, other])


def prefetch_ir(builder, address, write=False, level=1):
    """Prefetches the cache line at an address, which need not be mapped, into this level of cache."""
    ptr = pointer(builder, address, VEC)
    fn = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(ir.VoidType(), [ptr.type, I32, I32, I32]), "llvm.prefetch.p0"
    )
    builder.call(fn, [ptr, ir.Constant(I32, int(write)), ir.Constant(I32, 4 - level), ir.Constant(I32, 1)])


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
        exec(f"def function(typingctx, {names}): return signature(result, *params), codegen", scope)
        function = scope["function"]
        function.__name__, function.__doc__, function.__module__ = (
            emit.__name__,
            emit.__doc__,
            emit.__module__,
        )
        return intrinsic(function)

    return wrap


i64, f32 = types.int64, types.float32


splat = primitive(vec_t, f32)(splat_ir)
fma = primitive(vec_t, vec_t, vec_t, vec_t)(fma_ir)
vmax = primitive(vec_t, vec_t, vec_t)(vmax_ir)
vmin = primitive(vec_t, vec_t, vec_t)(vmin_ir)
vmax_nan = primitive(vec_t, vec_t, vec_t)(vmax_nan_ir)
divide = primitive(vec_t, vec_t, vec_t, vec_t)(divide_ir)


@primitive(vec_t, vec_t, vec_t, vec_t, vec_t)
def select_lt(builder, a, b, then, other):
    """``then`` where ``a < b``, ``other`` elsewhere (also where either is NaN)."""
    return builder.select(builder.fcmp_ordered("<", a, b), then, other)


def llvm_of_lanes(builder, name, x):
    """LLVM's intrinsic of that name on the lanes of ``x``, float32 or float64."""
    kind = "f32" if x.type.element == F32 else "f64"
    return call_llvm(builder, f"llvm.{name}.v{x.type.count}{kind}", x.type, [x])


def _llvm(name):
    return primitive(vec_t, vec_t)(lambda builder, x: llvm_of_lanes(builder, name, x))


vabs = _llvm("fabs")
vsqrt = _llvm("sqrt")  # correctly rounded
floor = _llvm("floor")
ceil = _llvm("ceil")
trunc = _llvm("trunc")
rint = _llvm("rint")  # of two nearest integers the even one


@primitive(vec_t, vec_t)
def minus_abs(builder, x):
    """The negated absolute value, in one operation: it sets the sign."""
    return builder.fneg(llvm_of_lanes(builder, "fabs", x))


def arithmetic(register, operations):
    """Gives a type of registers Python's operators: pairs of an operator and a builder's method."""

    class Arithmetic(AbstractTemplate):
        def generic(self, args, kws):
            if len(args) == 2 and all(isinstance(a, register) for a in args):
                return signature(args[0], *args)
            return None

    for function, method in operations:
        infer_global(function)(Arithmetic)
        lower_builtin(function, register, register)(
            lambda context, builder, sig, args, method=method: getattr(builder, method)(*args)
        )


OPERATIONS = (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
)
arithmetic(VecType, OPERATIONS)
