"""The largest elements of rows, in order; and one-hot rows."""

from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.places import OneHot, TopK
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.flag import raise_flag
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.lanes import lanes_before, trailing_zeros
from bslite.kernels.cpu.vector.memory import load, load_cell, load_scalar, store_cell
from bslite.kernels.cpu.vector.simd import LANES

K, H = reader(TopK), reader(OneHot)
FEW = 24  # elements kept in order by insertion


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


@register_jitable
def ahead(x, i, j, largest, floats):
    """Whether index i comes before j; of equal elements the lower index comes first."""
    if before(x + 4 * i, x + 4 * j, largest, floats):
        return True
    return i < j and not before(x + 4 * j, x + 4 * i, largest, floats)


@register_jitable
def next_before(x, i, length, kept, largest, floats):
    """The first element from i on that comes before the element ``kept``, or the length of the row."""
    if floats:
        value = load_scalar(x + 4 * kept)
        while i + LANES <= length:
            bits = lanes_before(load(x + 4 * i), value, largest != 0)
            if bits != 0:
                return i + trailing_zeros(bits)
            i += LANES
    while i < length and not before(x + 4 * i, x + 4 * kept, largest, floats):
        i += 1
    return i


@register_jitable
def sink(x, y, at, count, largest, floats):
    """Makes a heap of ``count`` indices at y, the last in order on top; all but the one at ``at`` are one."""
    moved = load_cell(y + 4 * at)
    child = 2 * at + 1
    while child < count:
        below = load_cell(y + 4 * child)
        if child + 1 < count and ahead(x, below, load_cell(y + 4 * child + 4), largest, floats):
            child += 1
            below = load_cell(y + 4 * child)
        if not ahead(x, moved, below, largest, floats):
            break
        store_cell(y + 4 * at, below)
        at, child = child, 2 * child + 1
    store_cell(y + 4 * at, moved)


@register_jitable
def by_heap(x, y, length, k, largest, floats):
    """Collects the first k of a row in a heap, then sorts it in place."""
    for i in range(k):
        store_cell(y + 4 * i, i)
    for i in range(k // 2):
        sink(x, y, k // 2 - 1 - i, k, largest, floats)
    i = next_before(x, k, length, load_cell(y), largest, floats)
    while i < length:
        store_cell(y, i)
        sink(x, y, 0, k, largest, floats)
        i = next_before(x, i + 1, length, load_cell(y), largest, floats)
    for i in range(1, k):
        last = load_cell(y)
        store_cell(y, load_cell(y + 4 * (k - i)))
        store_cell(y + 4 * (k - i), last)
        sink(x, y, 0, k - i, largest, floats)


@step_kernel(TopK)
def topk(step, bases, item, scratch):
    """Rows ``y [k]`` of indices into rows ``x [length]``, dense. A small k uses insertion into a sorted list:
    most elements of a long row are below all k and cost one comparison. A large k uses a heap.
    """
    s = K(step, bases)
    length, k, largest, floats = s.length, s.k, s.largest, s.floats
    first = item * s.item_rows
    for row in range(first, min(s.rows, first + s.item_rows)):
        x = s.x + 4 * row * length
        y = s.y + 4 * row * k
        if k > FEW:
            by_heap(x, y, length, k, largest, floats)
            continue
        i = 0
        while i < length:
            element, at = x + 4 * i, min(i, k - 1)  # the last of those so far gives way
            while at > 0 and before(element, x + 4 * load_cell(y + 4 * (at - 1)), largest, floats):
                store_cell(y + 4 * at, load_cell(y + 4 * (at - 1)))
                at -= 1
            store_cell(y + 4 * at, i)
            i += 1
            if i >= k:
                i = next_before(x, i, length, load_cell(y + 4 * (k - 1)), largest, floats)


@step_kernel(OneHot)
def one_hot(step, bases, item, scratch):
    """Dense: x [outer, inner], y [outer, depth, inner]; ``on`` and ``off`` are cells of any dtype."""
    s = H(step, bases)
    depth, inner, strict, on, off = s.depth, s.inner, s.strict, s.on, s.off
    x, y, flag = s.x, s.y, s.flag
    first = item * s.item_places
    for place in range(first, min(s.places, first + s.item_places)):
        index = load_cell(x + 4 * place)
        if strict and (index < 0 or index >= depth):
            raise_flag(flag, index)
        index = index + depth if index < 0 else index
        line = y + 4 * (place // inner * depth * inner + place % inner)
        for d in range(depth):
            store_cell(line + 4 * d * inner, on if d == index else off)
