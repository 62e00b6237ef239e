"""Across the lanes of one register: combined into one number, in a fixed order; picked by numbers."""

from llvmlite import ir

from bslite.kernels.cpu.vector.simd import I32, LANES, VEC, call_llvm, f32, i64, pointer, primitive, vec_t
from bslite.kernels.cpu.vector.target import picks_lanes

LANE_NUMBERS = ir.VectorType(I32, LANES)
#: The instructions that pick lanes, by the lanes of a register.
PICK = {8: "llvm.x86.avx2.permps", 16: "llvm.x86.avx512.permvar.sf.512"}


def picked_ir(builder, value, lanes):
    """Lane ``lanes[i]`` of ``value`` in each lane i; ``lanes`` is a vector of int32."""
    if picks_lanes():
        return call_llvm(builder, PICK[LANES], VEC, [value, lanes])
    found = ir.Constant(VEC, ir.Undefined)
    for i in range(LANES):
        lane = builder.extract_element(lanes, ir.Constant(I32, i))
        found = builder.insert_element(found, builder.extract_element(value, lane), ir.Constant(I32, i))
    return found


@primitive(vec_t, vec_t, i64)
def picked(builder, value, address):
    """In each lane, the lane of ``value`` that the int32 there in the register at ``address`` tells."""
    return picked_ir(builder, value, builder.load(pointer(builder, address, LANE_NUMBERS), align=4))


@primitive(vec_t, vec_t, i64, vec_t)
def picked_or(builder, value, address, other):
    """As `picked`, but ``other`` where the number is negative."""
    lanes = builder.load(pointer(builder, address, LANE_NUMBERS), align=4)
    told = builder.icmp_signed(">=", lanes, ir.Constant(LANE_NUMBERS, [0] * LANES))
    inside = builder.and_(lanes, ir.Constant(LANE_NUMBERS, [LANES - 1] * LANES))
    return builder.select(told, picked_ir(builder, value, inside), other)


def pairwise(builder, value, combine):
    """Reduce the lanes pairwise, halves first: a fixed order, so results do not depend on the schedule."""
    width = value.type.count
    while width > 1:
        width //= 2
        lo = ir.Constant(ir.VectorType(I32, width), list(range(width)))
        hi = ir.Constant(ir.VectorType(I32, width), list(range(width, 2 * width)))
        undef = ir.Constant(value.type, ir.Undefined)
        value = combine(builder.shuffle_vector(value, undef, lo), builder.shuffle_vector(value, undef, hi))
    return builder.extract_element(value, ir.Constant(I32, 0))


def sums_ir(builder, registers):
    """The sum of each register's lanes, as a vector, added as `hsum` adds them; a power of two of registers.

    Two registers become one: what is left of both stands side by side in it.
    """
    width = LANES  # lanes that each sum has left
    while width > 1:
        width //= 2
        pairs = (
            list(zip(registers[::2], registers[1::2], strict=True))
            if len(registers) > 1
            else [(registers[0], ir.Constant(registers[0].type, ir.Undefined))]
        )
        lanes = registers[0].type.count * min(2, len(registers))
        low = [i for run in range(0, lanes, 2 * width) for i in range(run, run + width)]
        halves = [ir.Constant(ir.VectorType(I32, len(low)), [i + by for i in low]) for by in (0, width)]
        registers = [builder.fadd(*(builder.shuffle_vector(a, b, h) for h in halves)) for a, b in pairs]
    return registers[0]


@primitive(f32, vec_t)
def hsum(builder, x):
    """Sum of the lanes, pairwise."""
    return pairwise(builder, x, builder.fadd)


@primitive(f32, vec_t)
def hmax_of_numbers(builder, x):
    """Largest lane, if none is NaN."""
    return pairwise(builder, x, lambda a, b: builder.select(builder.fcmp_ordered(">", a, b), a, b))


@primitive(f32, vec_t)
def hmax(builder, x):
    """Largest lane; NaN if any lane is NaN."""

    def larger(a, b):
        most = builder.select(builder.fcmp_ordered(">", a, b), a, b)
        return builder.select(builder.fcmp_unordered("uno", a, a), a, most)

    return pairwise(builder, x, larger)
