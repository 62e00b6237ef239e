"""What register tiles of all kinds share: a body for every number of rows, and a step of their sums."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from numba import types

from bslite.kernels.cpu.vector import simd
from bslite.kernels.cpu.vector.ir import const, one_of

LINE = 64
PREFETCHES = 2  # cache lines of a later B that a tile fetches in one iteration
AHEAD = 8 << 10  # bytes that numbers of few bits are fetched ahead, into L1
OWN_AHEAD = 32 << 10  # bytes that a tile fetches its own B ahead, into L2: memory takes its time
FEW = 3  # tiles of a B, up to which each fetches its own: too few to fetch a later one whole
ROWS_PER_POINTER = 3  # x86 reaches p, p+s and p+2s by addressing modes alone


def by_rows(emit_tile: Callable[..., None], operands: Any, most: int, **how: Any) -> Any:
    """Numba intrinsic ``tile(rows, *operands)`` for 1 to ``most`` rows; ``operands``: named tuples.

    ``emit_tile(builder, rows=, op=, **how)`` emits one. ``lo`` and ``hi`` are float32, other fields int64.
    """
    params = [types.float32 if name in ("lo", "hi") else types.int64 for name in operands._fields]

    def emit(builder: Any, rows: Any, *args: Any) -> None:
        tile = functools.partial(emit_tile, builder, op=operands(*args), **how)
        one_of(builder, rows, {r: functools.partial(tile, rows=r) for r in range(1, most + 1)})

    return simd.primitive(types.void, types.int64, *params)(emit)


def prefetching(builder: Any, given: Any, size: int) -> Callable[[Any, Any], None]:
    """Emits, for ``prefetch(b, ahead)``, what an iteration that reads ``size`` bytes of B fetches: a few
    lines from ``ahead`` on, or, if the address ``given`` to the tile is 0, as much of its own B as it reads.
    """
    own = builder.icmp_signed("==", given, const(0))

    def prefetch(b: Any, ahead: Any) -> None:
        with builder.if_else(own) as (mine, later):
            with mine:
                for place in range(0, size, LINE):
                    simd.prefetch_ir(builder, builder.add(b, const(OWN_AHEAD + place)), level=2)
            with later:
                for place in range(0, PREFETCHES * LINE, LINE):
                    simd.prefetch_ir(builder, builder.add(ahead, const(place)))

    return prefetch


def groups_of(rows: int) -> list[range]:
    """The rows that one pointer reaches."""
    return [range(i, min(i + ROWS_PER_POINTER, rows)) for i in range(0, rows, ROWS_PER_POINTER)]


def add_products(
    builder: Any, pointers: Sequence[Any], groups: Sequence[range], a_row: Any, k: int, bs: Sequence[Any],
    acc: list[Any], multiply: Callable[..., Any] = simd.fma_ir,
) -> None:  # fmt: skip
    """Emits ``acc[i, v] += A[i, k] * bs[v]``; there is a pointer to the first row of A of each group.
    ``multiply``: what multiplies two registers and adds a third.
    """
    for pointer, group in zip(pointers, groups, strict=True):
        for j, i in enumerate(group):
            address = builder.add(pointer, builder.mul(a_row, const(j))) if j else pointer
            x = builder.load(simd.pointer(builder, builder.add(address, const(4 * k))), align=4)
            xs = simd.splat_ir(builder, x)
            for v, b in enumerate(bs):
                acc[i * len(bs) + v] = multiply(builder, xs, b, acc[i * len(bs) + v])
