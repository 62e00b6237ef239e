"""Some rows at once normalised by their own statistics: layer norm, RMS norm, unit length.

A row's sums, its mean and its deviation wait for each other; rows side by side do not. Their accumulators
stand in registers, and what is left of each is added up across lanes together with the others.

The mean is computed first, then the squares of the deviations: the one-pass formula cancels. The sum of the
deviations corrects the mean for the rounding of the first sum. An accumulator sums `BLOCK` registers in
float32; totals are float64.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types

from bslite.kernels.contracts.rows import Norm
from bslite.kernels.cpu.vector import simd
from bslite.kernels.cpu.vector.across import sums_ir
from bslite.kernels.cpu.vector.ir import const, loop, one_of, where
from bslite.kernels.cpu.vector.simd import BYTES, F32, I32, I64, LANES, VEC

F64 = ir.DoubleType()
BLOCK = 32  # registers of a row that an accumulator sums
#: Rows of a tile, and the longest ones (elements) that are taken so: long rows side by side would leave L1,
#: and memory is fetched ahead along few. Two accumulators and the mean of each fit into 16 registers.
TILES = ((4, 512), (2, 1024), (1, 1 << 62))
SMALLEST = float(np.finfo(np.float32).tiny)


class Operands(NamedTuple):
    """A tile's arguments: int64 byte addresses, strides and counts; ``inverse_length`` and ``eps`` are
    float64.
    """

    x: Any
    x_row: Any
    y: Any
    y_row: Any
    length: Any
    weight: Any  # 0: none
    bias: Any  # 0: none
    inverse_length: Any
    eps: Any


class Rows:
    """A tile's rows, register by register."""

    def __init__(self, builder: Any, rows: int, op: Operands) -> None:
        self.builder, self.rows, self.op = builder, rows, op
        self.whole = builder.sdiv(op.length, const(LANES))
        self.rest = builder.srem(op.length, const(LANES))
        self.mask = simd.first_lanes(builder, self.rest)
        self.has_rest = builder.icmp_signed("!=", self.rest, const(0))

    def places(self, at: Any) -> list[Any]:
        """Where each row of x has its register ``at`` (bytes)."""
        builder, op = self.builder, self.op
        starts = (builder.add(op.x, builder.mul(op.x_row, const(i))) for i in range(self.rows))
        return [builder.add(start, at) for start in starts]

    def sums(self, count: int, others: list[Any], add: Callable[..., list[Any]]) -> list[Any]:
        """``count`` sums of every row, each a vector of float64: ``add(registers, accumulators)`` adds a
        register of every row. ``others``: what a row has beyond its end.
        """
        builder = self.builder
        registers = builder.add(self.whole, builder.zext(self.has_rest, I64))
        blocks = builder.sdiv(builder.add(registers, const(BLOCK - 1)), const(BLOCK))
        zeros = [ir.Constant(VEC, [0.0] * LANES)] * (self.rows * count)

        def block(index: Any, totals: list[Any]) -> list[Any]:
            first = builder.mul(index, const(BLOCK))
            left = builder.sub(self.whole, first)
            full = builder.icmp_signed(">=", left, const(BLOCK))

            def step(i: Any, acc: list[Any]) -> list[Any]:
                at = builder.mul(builder.add(first, i), const(BYTES))
                return add([simd.load_ir(builder, p) for p in self.places(at)], acc)

            acc = loop(builder, builder.select(full, const(BLOCK), left), zeros, step)

            def partial() -> list[Any]:
                at = builder.mul(self.whole, const(BYTES))
                places = zip(self.places(at), others, strict=True)
                return add([simd.masked_load_ir(builder, p, self.mask, other) for p, other in places], acc)

            acc = where(builder, builder.and_(builder.not_(full), self.has_rest), acc, partial)
            found = [sums_ir(builder, acc[i : i + self.rows]) for i in range(0, len(acc), self.rows)]
            return [
                builder.fadd(total, widened(builder, one)) for total, one in zip(totals, found, strict=True)
            ]

        return loop(builder, blocks, [numbers(0.0, self.rows)] * count, block)

    def each(self, change: Callable[[Any, Any, int], Any]) -> None:
        """Writes ``change(register, at, row)`` of every register, row after row: fewer lines of memory are
        fetched for writing at a time.
        """
        builder, op, zeros = self.builder, self.op, ir.Constant(VEC, [0.0] * LANES)
        for row in range(self.rows):
            x = builder.add(op.x, builder.mul(op.x_row, const(row)))
            y = builder.add(op.y, builder.mul(op.y_row, const(row)))

            def step(i: Any, carried: list[Any], x=x, y=y, row=row) -> list[Any]:
                at = builder.mul(i, const(BYTES))
                value = change(simd.load_ir(builder, builder.add(x, at)), at, row)
                simd.store_ir(builder, builder.add(y, at), value)
                return carried

            loop(builder, self.whole, [], step)
            with builder.if_then(self.has_rest):
                at = builder.mul(self.whole, const(BYTES))
                value = simd.masked_load_ir(builder, builder.add(x, at), self.mask, zeros)
                value = change(value, at, row)
                simd.masked_store_ir(builder, builder.add(y, at), value, self.mask)


def numbers(value: float, rows: int) -> Any:
    """A float64 for each row."""
    return ir.Constant(ir.VectorType(F64, rows), [value] * rows)


def splatted(builder: Any, value: Any, rows: int) -> Any:
    """A float64 for each row, ``value`` for all."""
    return simd.splat_ir(builder, value, ir.VectorType(F64, rows))


def widened(builder: Any, values: Any) -> Any:
    """Float32 numbers as float64."""
    return builder.fpext(values, ir.VectorType(F64, values.type.count))


def narrowed(builder: Any, values: Any) -> list[Any]:
    """For each row its number, rounded to float32, in all lanes of a register."""
    rounded = builder.fptrunc(values, ir.VectorType(F32, values.type.count))
    one_each = (builder.extract_element(rounded, ir.Constant(I32, i)) for i in range(values.type.count))
    return [simd.splat_ir(builder, one) for one in one_each]


def emit_tile(builder: Any, rows: int, op: Operands, norm: Norm) -> None:
    """Emits a tile of so many rows."""
    tile, zeros = Rows(builder, rows, op), ir.Constant(VEC, [0.0] * LANES)
    inverse_length = splatted(builder, op.inverse_length, rows)
    middles = [zeros] * rows

    def add(values: list[Any], acc: list[Any]) -> list[Any]:
        return [builder.fadd(a, x) for a, x in zip(acc, values, strict=True)]

    def add_squares(values: list[Any], acc: list[Any]) -> list[Any]:
        return [simd.fma_ir(builder, x, x, a) for a, x in zip(acc, values, strict=True)]

    def add_both(values: list[Any], acc: list[Any]) -> list[Any]:
        away = [builder.fsub(x, middle) for x, middle in zip(values, middles, strict=True)]
        return [*add(away, acc[:rows]), *add_squares(away, acc[rows:])]

    if norm == Norm.LAYER:
        (total,) = tile.sums(1, [zeros] * rows, add)
        middles = narrowed(builder, builder.fmul(total, inverse_length))  # the means but for rounding
        rest, squares = tile.sums(2, middles, add_both)
        rest = builder.fmul(rest, inverse_length)  # the correction of the mean
        variance = builder.fsub(builder.fmul(squares, inverse_length), builder.fmul(rest, rest))
    else:
        (squares,) = tile.sums(1, [zeros] * rows, add_squares)
        variance = builder.fmul(squares, inverse_length)
    eps = splatted(builder, op.eps, rows)
    if norm == Norm.UNIT:  # the reciprocal of less than the smallest normal number would be infinite
        deviation = simd.llvm_of_lanes(builder, "sqrt", squares)
        for least in (eps, numbers(SMALLEST, rows)):
            deviation = builder.select(builder.fcmp_ordered("<", deviation, least), least, deviation)
    else:  # rounding may make a variance negative
        nothing = numbers(0.0, rows)
        variance = builder.select(builder.fcmp_ordered("<", variance, nothing), nothing, variance)
        deviation = simd.llvm_of_lanes(builder, "sqrt", builder.fadd(variance, eps))
    inverse = builder.fdiv(numbers(1.0, rows), deviation)
    scales = narrowed(builder, inverse)
    shifts = narrowed(builder, builder.fneg(builder.fmul(rest, inverse))) if norm == Norm.LAYER else []

    def normalized(value: Any, at: Any, row: int) -> Any:
        if norm == Norm.LAYER:
            value = simd.fma_ir(builder, builder.fsub(value, middles[row]), scales[row], shifts[row])
        else:
            value = builder.fmul(value, scales[row])
        for address, change in ((op.weight, builder.fmul), (op.bias, builder.fadd)):

            def affine(address=address, change=change, value=value) -> list[Any]:
                return [change(value, simd.load_ir(builder, builder.add(address, at)))]

            (value,) = where(builder, builder.icmp_signed("!=", address, const(0)), [value], affine)
        return value

    tile.each(normalized)


def norm_tile(norm: Norm) -> Any:
    """Numba intrinsic ``tile(rows, *Operands)`` for the numbers of rows in `TILES`."""
    doubles = ("inverse_length", "eps")
    params = [types.float64 if name in doubles else types.int64 for name in Operands._fields]

    def emit(builder: Any, rows: Any, *args: Any) -> None:
        op = Operands(*args)
        one_of(builder, rows, {n: lambda n=n: emit_tile(builder, n, op, norm) for n, _ in TILES})

    return simd.primitive(types.void, types.int64, *params)(emit)
