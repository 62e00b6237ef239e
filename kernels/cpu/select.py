"""The largest elements of rows, in order; and rows that are one at an index."""

from __future__ import annotations

from numba.extending import register_jitable

from bslite.kernels.cpu.compile import record, step_kernel
from bslite.kernels.cpu.flag import raise_flag
from bslite.kernels.cpu.operand import operand
from bslite.kernels.cpu.simd import load_cell, load_int, load_scalar, store_cell

K = record("topk", "x x_at y y_at rows item_rows length k largest floats")
H = record("one_hot", "x x_at y y_at flag flag_at places item_places depth inner on off strict")


@register_jitable
def before(a, b, largest, floats):
    """Whether the element at address ``a`` comes before that at ``b``; NaN is the largest of all."""
    if floats:
        p, q = load_scalar(a), load_scalar(b)
        if largest:
            return p > q or (p != p and q == q)
        return p < q or (p == p and q != q)
    i, j = load_cell(a), load_cell(b)
    return i > j if largest else i < j


@step_kernel("topk", K)
def topk(step, bases, item, scratch):
    """Rows ``y [k]`` of indices into rows ``x [length]``, dense: each element takes its place so far.

    Most elements of long rows are below all k and cost one comparison.
    """
    length, k = load_int(step + K.length), load_int(step + K.k)
    largest, floats = load_int(step + K.largest), load_int(step + K.floats)
    first = item * load_int(step + K.item_rows)
    for row in range(first, min(load_int(step + K.rows), first + load_int(step + K.item_rows))):
        x = operand(step, bases, K.x) + 4 * row * length
        y = operand(step, bases, K.y) + 4 * row * k
        for i in range(length):
            element = x + 4 * i
            at = min(i, k)  # the elements so far
            if at == k:
                if not before(element, x + 4 * load_cell(y + 4 * (k - 1)), largest, floats):
                    continue
                at = k - 1
            while at > 0 and before(element, x + 4 * load_cell(y + 4 * (at - 1)), largest, floats):
                store_cell(y + 4 * at, load_cell(y + 4 * (at - 1)))
                at -= 1
            store_cell(y + 4 * at, i)


@step_kernel("one_hot", H)
def one_hot(step, bases, item, scratch):
    """Dense: x [outer, inner], y [outer, depth, inner]; ``on`` and ``off`` are cells of any dtype."""
    depth, inner, strict = load_int(step + H.depth), load_int(step + H.inner), load_int(step + H.strict)
    on, off = load_cell(step + H.on), load_cell(step + H.off)
    x, y, flag = operand(step, bases, H.x), operand(step, bases, H.y), operand(step, bases, H.flag)
    first = item * load_int(step + H.item_places)
    for place in range(first, min(load_int(step + H.places), first + load_int(step + H.item_places))):
        index = load_cell(x + 4 * place)
        if strict and (index < 0 or index >= depth):
            raise_flag(flag, index)
        index = index + depth if index < 0 else index
        line = y + 4 * (place // inner * depth * inner + place % inner)
        for d in range(depth):
            store_cell(line + 4 * d * inner, on if d == index else off)
