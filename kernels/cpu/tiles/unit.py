"""A unit that multiplies tiles of bfloat16: Intel's AMX, or the same in ordinary vector code.

Operations emit LLVM IR. A tile is 16 rows of 64 bytes. Where there is no such unit, the eight tiles are 8 KB
of memory at the address ``unit``. The product is that of TDPBF16PS: sums of the even and of the odd terms
apart, each term a multiply-add, then both and the tile's sums together. (The unit also flushes what is below
the normal range to zero.)
"""

from typing import Any

from llvmlite import ir

from bslite.kernels.contracts.cpu.tiles import LINE, ROWS, TILE
from bslite.kernels.cpu.vector import simd
from bslite.kernels.cpu.vector.bfloat16 import terms_ir
from bslite.kernels.cpu.vector.ir import const, loop
from bslite.kernels.cpu.vector.lanes import INTS
from bslite.kernels.cpu.vector.simd import BYTES, I32, I64, LANES, VEC, primitive
from bslite.kernels.cpu.vector.target import has_tiles

I8 = ir.IntType(8)


def _call(builder: Any, name: str, *args: Any) -> None:
    """Calls one of AMX's intrinsics; LLVM takes constant numbers of tiles in the place of registers."""
    simd.call_llvm(builder, f"llvm.x86.{name}", ir.VoidType(), args)


def _number(tile: int) -> Any:
    return ir.Constant(I8, tile)


def _memory(builder: Any, unit: Any, tile: int) -> Any:
    return builder.add(unit, const(TILE * tile))


def zero_ir(builder: Any, unit: Any, tile: int) -> None:
    """Sets a tile to zeros."""
    if has_tiles():
        _call(builder, "tilezero", _number(tile))
        return
    for place in range(0, TILE, BYTES):
        simd.store_ir(builder, builder.add(unit, const(TILE * tile + place)), ir.Constant(VEC, [0.0] * LANES))


def load_ir(builder: Any, unit: Any, tile: int, address: Any, stride: Any) -> None:
    """Loads a tile, whose rows lie ``stride`` bytes apart."""
    if has_tiles():
        _call(builder, "tileloadd64", _number(tile), simd.pointer(builder, address, I8), stride)
        return
    _copy(builder, address, stride, _memory(builder, unit, tile), const(LINE))


def store_ir(builder: Any, unit: Any, tile: int, address: Any, stride: Any) -> None:
    """Stores a tile, with rows ``stride`` bytes apart."""
    if has_tiles():
        _call(builder, "tilestored64", _number(tile), simd.pointer(builder, address, I8), stride)
        return
    _copy(builder, _memory(builder, unit, tile), const(LINE), address, stride)


def _copy(builder: Any, source: Any, source_row: Any, target: Any, target_row: Any) -> None:
    def row(i: Any, carried: list[Any]) -> list[Any]:
        a = builder.add(source, builder.mul(i, source_row))
        b = builder.add(target, builder.mul(i, target_row))
        for place in range(0, LINE, BYTES):
            x = simd.load_ir(builder, builder.add(a, const(place)))
            simd.store_ir(builder, builder.add(b, const(place)), x)
        return carried

    loop(builder, const(ROWS), [], row)


def product_ir(builder: Any, unit: Any, sums: int, a: int, b: int) -> None:
    """Adds the product of tiles ``a`` and ``b``, pairs of terms in every cell, to the tile ``sums``."""
    if has_tiles():
        _call(builder, "tdpbf16ps", _number(sums), _number(a), _number(b))
        return
    registers = LINE // BYTES
    zeros = [ir.Constant(VEC, [0.0] * LANES)] * (2 * registers)
    at_a, at_b, at_sums = (_memory(builder, unit, tile) for tile in (a, b, sums))

    def row(i: Any, carried: list[Any]) -> list[Any]:
        mine = builder.add(at_a, builder.mul(i, const(LINE)))

        def pair(k: Any, acc: list[Any]) -> list[Any]:
            cell = simd.pointer(builder, builder.add(mine, builder.shl(k, const(2))), I32)
            xs = terms_ir(builder, simd.splat_ir(builder, builder.load(cell, align=4), INTS))
            line, made = builder.add(at_b, builder.mul(k, const(LINE))), list(acc)
            for v in range(registers):
                y = builder.load(simd.pointer(builder, builder.add(line, const(v * BYTES)), INTS), align=4)
                for odd, (x, w) in enumerate(zip(xs, terms_ir(builder, y), strict=True)):
                    made[2 * v + odd] = simd.fma_ir(builder, x, w, acc[2 * v + odd])
            return made

        acc = loop(builder, const(ROWS), zeros, pair)
        for v in range(registers):
            place = builder.add(at_sums, builder.add(builder.mul(i, const(LINE)), const(v * BYTES)))
            both = builder.fadd(acc[2 * v], acc[2 * v + 1])
            simd.store_ir(builder, place, builder.fadd(simd.load_ir(builder, place), both))
        return carried

    loop(builder, const(ROWS), [], row)


@primitive(simd.types.void, simd.i64)
def configure(builder: Any, config: Any) -> None:
    """Readies the thread's unit for eight tiles of 16 rows of 64 bytes; ``config``: 64 bytes to write."""
    if not has_tiles():
        return
    for place in range(0, 64, 8):
        #: palette 1; bytes of a row, 16 bits each, from byte 16 on; rows, 8 bits each, from byte 48 on
        word = {0: 1, 16: 0x40_0040_0040_0040, 24: 0x40_0040_0040_0040, 48: 0x1010_1010_1010_1010}.get(
            place, 0
        )
        cell = simd.pointer(builder, builder.add(config, const(place)), I64)
        builder.store(const(word), cell, align=8)
    _call(builder, "ldtilecfg", simd.pointer(builder, config, I8))


@primitive(simd.types.void)
def release(builder: Any) -> None:
    """Gives the thread's tiles back, so that the system need not keep them when threads change."""
    if has_tiles():
        _call(builder, "tilerelease")
