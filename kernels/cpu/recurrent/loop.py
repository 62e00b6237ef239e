"""Recurrent layers as one loop nest (arXiv 1909.13654): for each time step, for each block of hidden units.

A block multiplies h by its units' rows of the recurrent weights, all gates at once, on the GEMM microkernel;
the gates' functions run while the products are in L1 (`recurrent_cell`), and the block writes its part of the
new h and c. No gate vector ever exists in full. The products with the inputs of all steps are there already;
those of a single step are computed here.

Every thread that comes joins in: threads claim groups of blocks by atomic counters, their own share first, so
that a thread reads the same weights at every step and finds them in its own L2; the sweeps over the shares
alternate between forwards and backwards, so that the end of one step's weights, still in cache, is the
beginning of the next one's. A group is claimed only when the pass before is complete, so no thread waits for
one that has not come.

Two layers need a second pass over blocks in each step: an LSTM whose h is projected, and a GRU that applies
the reset gate before the product.

The planner chooses the blocks of a group and of a tile, the number of threads and the direction of the sweep
(`explore.cpu`); none of these changes a bit of the answer.
"""

from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.recurrent import Recurrent
from bslite.kernels.cpu.gemm.sweep import call_gemm_sweep
from bslite.kernels.cpu.recurrent.cell import F, first_cells, gates_of, second_cells
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.vector.atomic import LINE, fetch_add, load_acquire, wait_until
from bslite.kernels.cpu.vector.operand import operand
from bslite.kernels.cpu.vector.prefetch import prefetch
from bslite.kernels.cpu.vector.simd import BYTES, LANES, load_int


@register_jitable
def _product(sweep, step, cut, a, a_row, offsets, taps, chunk_taps, depth, weights, vecs, bias, c):
    """``c[N, vecs*LANES] = a[N, K] @ weights + bias``, c dense; sums K in parts as `plan.reduction`."""
    tiles1, rows1 = load_int(cut), load_int(cut + 8)
    tiles2, rows2 = load_int(cut + 16), load_int(cut + 24)
    done1, row = tiles1 * rows1, vecs * BYTES
    tap = 0
    while tap < taps:
        count = min(chunk_taps, taps - tap)
        part, line = weights + tap * depth * row, offsets + 8 * tap
        call_gemm_sweep(sweep, rows1, tiles1, a, a_row, line, count, depth, part, c, row, bias, tap, 0, 0,
                        step + F.minus_inf, LANES, 0, 0)  # fmt: skip
        if tiles2:
            call_gemm_sweep(sweep, rows2, tiles2, a + done1 * a_row, a_row, line, count, depth, part,
                            c + done1 * row, row, bias, tap, 0, 0, step + F.minus_inf, LANES, 0,
                            0)  # fmt: skip
        tap += count


@register_jitable
def _products(step, bases, a, a_row, which, cut, sweep, gates, tile, first, count, work, back):
    """Multiplies ``a`` [N, K] for ``count`` blocks from ``first`` into ``work``, tile by tile.

    ``which``: 0 for the weights of h, 1 for those of the second pass, 2 for those of x.
    """
    batch = load_int(step + F.batch)
    if which == 0:
        weights, bias = operand(step, bases, F.weights), operand(step, bases, F.bias)
        offsets, taps = operand(step, bases, F.offsets), load_int(step + F.taps)
        chunk, depth = load_int(step + F.chunk_taps), load_int(step + F.depth)
    elif which == 1:
        weights, bias = operand(step, bases, F.weights2), operand(step, bases, F.bias2)
        offsets, taps = operand(step, bases, F.offsets2), load_int(step + F.taps2)
        chunk, depth = load_int(step + F.chunk_taps2), load_int(step + F.depth2)
    else:
        weights, bias = operand(step, bases, F.weights_x), operand(step, bases, F.bias_x)
        offsets, taps = operand(step, bases, F.offsets_x), load_int(step + F.taps_x)
        chunk, depth = load_int(step + F.chunk_taps_x), load_int(step + F.depth_x)
    vecs = gates * tile
    panel = taps * depth * vecs * BYTES
    tiles = count // tile
    for i in range(tiles):
        j = tiles - 1 - i if back else i
        own = first // tile + j
        start = weights + own * panel
        _product(sweep, step, cut, a, a_row, offsets, taps, chunk, depth, start, vecs,
                 bias + own * vecs * BYTES, work + j * batch * vecs * BYTES)  # fmt: skip


@register_jitable
def _first(step, bases, s, group, work, back):
    """Computes the first pass of time step ``s`` for a group of blocks."""
    units, tile = load_int(step + F.units), load_int(step + F.tile_units)
    first = group * units
    count = min(units, load_int(step + F.blocks) - first)
    gates = gates_of(load_int(step + F.kind))
    state_row = load_int(step + F.state_row)
    old = operand(step, bases, F.state) + (s & 1) * load_int(step + F.state_bytes)
    sweep, cut = load_int(step + F.sweep), step + F.cut0
    x_work = 0
    if load_int(step + F.taps_x):
        x_work = work + load_int(step + F.work_bytes) // 2
        x, row = operand(step, bases, F.x), load_int(step + F.x_row)
        _products(step, bases, x, row, 2, cut, sweep, gates, tile, first, count, x_work, back)
    _products(step, bases, old, state_row, 0, cut, sweep, gates, tile, first, count, work, back)
    first_cells(step, bases, s, first, count, tile, work, x_work)


@register_jitable
def _second(step, bases, s, group, work, back):
    """Computes the second pass of time step ``s`` for a group of blocks."""
    units, tile = load_int(step + F.units2), load_int(step + F.tile_units2)
    first = group * units
    count = min(units, load_int(step + F.blocks2) - first)
    between, row = operand(step, bases, F.between), load_int(step + F.row_bytes)
    sweep, cut = load_int(step + F.sweep2), step + F.cut_second0
    _products(step, bases, between, row, 1, cut, sweep, 1, tile, first, count, work, back)
    second_cells(step, bases, s, first, count, tile, work)


@register_jitable
def _fetch_state(step, bases, s):
    """Prefetches all of h: other cores wrote half of it, and each of its lines takes long to arrive."""
    state = operand(step, bases, F.state) + (s & 1) * load_int(step + F.state_bytes)
    size = load_int(step + F.state_bytes)
    for line in range(0, size, LINE):
        prefetch(state + line)


@register_jitable
def _groups(step, second):
    """The number of groups of blocks in a pass."""
    if second:
        return -(-load_int(step + F.blocks2) // load_int(step + F.units2))
    return -(-load_int(step + F.blocks) // load_int(step + F.units))


@step_kernel(Recurrent)
def recurrent(step, bases, item, scratch):
    """Joins in all time steps until no group is left; there are as many items as threads may come."""
    shares, steps = load_int(step + F.shares), load_int(step + F.steps)
    stride = (1 + shares) * LINE
    counters = operand(step, bases, F.counters)
    work = operand(step, bases, F.work) + item * load_int(step + F.work_bytes)
    passes = 2 if load_int(step + F.blocks2) else 1
    alternate = load_int(step + F.sweeps_back)
    before = 0
    for stage in range(steps * passes):
        s, second = stage // passes, stage % passes
        back = alternate & s & 1
        finished = counters + stage * stride
        ready = stage == 0
        groups = _groups(step, second)
        for turn in range(shares):
            share = (item + turn) % shares
            first, last = groups * share // shares, groups * (share + 1) // shares
            claimed = finished + (1 + share) * LINE
            while first + load_acquire(claimed) < last:
                if not ready:
                    wait_until(finished - stride, before)
                    ready = True
                    _fetch_state(step, bases, s)
                i = first + fetch_add(claimed, 1)
                if i < last:
                    group = first + last - 1 - i if back else i
                    if second:
                        _second(step, bases, s, group, work, back)
                    else:
                        _first(step, bases, s, group, work, back)
                    fetch_add(finished, 1)
        before = groups
