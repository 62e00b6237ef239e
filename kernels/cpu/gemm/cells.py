"""The end of a register tile whose results are stored as cells of two bfloat16 neighbours."""

from llvmlite import ir

from bslite.kernels.cpu.vector import simd
from bslite.kernels.cpu.vector.bfloat16 import larger_ir, not_finite_ir, rounded_ir
from bslite.kernels.cpu.vector.ir import const
from bslite.kernels.cpu.vector.simd import BYTES, I64, LANES, VEC

HALF = BYTES // 2


def store_cells(builder, places, values, vecs, last, flag):
    """Stores the rows of a tile, of ``vecs`` registers each, rounded, two registers to one of cells.

    ``places``: of each row's first cell. ``last``: the valid lanes of a row's last register; an odd number's
    last cell holds a zero, too. ``flag`` is raised if a result has no finite bfloat16.
    """
    zero = ir.Constant(VEC, [0.0] * LANES)
    whole = builder.icmp_signed(">=", last, const(LANES))
    with builder.if_else(whole) as (all_lanes, some_lanes):
        for branch, is_whole in ((all_lanes, True), (some_lanes, False)):
            with branch:
                rows, seen = [values[i : i + vecs] for i in range(0, len(values), vecs)], zero
                if not is_whole:
                    valid = simd.first_lanes(builder, last)
                    rows = [[*row[:-1], builder.select(valid, row[-1], zero)] for row in rows]
                for place, row in zip(places, rows, strict=True):
                    for v in range(0, vecs, 2):
                        pair = [*row[v : v + 2], zero][:2]
                        made = rounded_ir(builder, *pair)
                        seen = larger_ir(builder, seen, made)
                        at = builder.add(place, const(v * HALF))
                        ends = v + 2 >= vecs
                        before = LANES * (vecs - v - 1)  # channels of the pair before its last register
                        if ends and not (is_whole and before):
                            channels = const(LANES) if is_whole else last
                            count = builder.ashr(builder.add(channels, const(before + 1)), const(1))
                            simd.masked_store_ir(builder, at, made, simd.first_lanes(builder, count))
                        else:
                            simd.store_ir(builder, at, made)
                with builder.if_then(not_finite_ir(builder, seen)):
                    builder.store(const(1), simd.pointer(builder, flag, I64), align=8)
