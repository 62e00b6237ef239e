"""Attention in one launch: only one tile of rows by one block of keys has scores at a time, in registers.

``y = softmax(q @ k^T * scale + mask) @ v`` for one head at a time; a block of threads has ``BQ`` rows of q
and goes through the keys ``BK`` at a time. Both products are the register tiles of `tile.py`: scores ``[BQ,
BK]`` from slices of q and k, then ``[BQ, F]`` from the exponentials and slices of v. The exponentials lie in
shared memory with the rows innermost, the layout of A. Between blocks of keys, a row's state is its largest
score so far and the sum of its exponentials relative to that; where a later block has a larger score, the
sums so far are scaled down (online softmax: arXiv 1805.02867; as a schedule for attention: FlashAttention,
arXiv 2205.14135). The order of every sum is that of the keys.

* **Traffic.** Scores never leave the SM. k and v are read once per tile of rows, mostly from L2; at 64 rows
  and F = E = 64 that is 16 multiply-adds per byte, beyond what HBM needs (128 of them a cycle on each of 132
  SMs at 1.8 GHz, over 4.8 TB/s: 6.5).
* **Causal.** Keys that no row of the tile sees are only scanned for infinities and NaN, which zero weights do
  not hide: 64 reads of 4 bytes per thread in place of 8,192 multiply-adds.
* **Exponentials.** ``threads / BQ`` threads share a row, neighbours on neighbouring rows: no bank conflicts.
  A key costs a row one exponential, some 20 instructions, beside E + F multiply-adds. Storing the scores with
  rows innermost meets the same bank four times, 32 stores per thread and block of keys.
* **Occupancy.** 128 threads (64 for heads of 32) of at most 168 registers: three blocks, 12 warps an SM, with
  about 30 KB of shared memory each. Heads of 128 columns take tiles of 32 rows: with 64 rows, 64 registers of
  sums and 32 of scores left too few for the rest, and it spilled.
"""

from collections.abc import Callable

import numpy as np

from bslite.kernels.contracts.attention import Mask
from bslite.kernels.contracts.cuda.attention import Attention, AttentionPairs, AttentionVariant
from bslite.kernels.cuda.gemm.access import cell_access, split
from bslite.kernels.cuda.gemm.tile import DEPTH, PAD, QUAD, Tile, placement, products, unrolled
from bslite.kernels.cuda.math.libm import exp, larger
from bslite.kernels.cuda.runtime.device import cuda, device_function
from bslite.kernels.cuda.runtime.kernel import kernel

THREADS = 128
i32, f4 = np.int32, np.float32
LOWEST = f4(-np.inf)
ADDED, ALLOWED = int(Mask.ADDED), int(Mask.ALLOWED)


def _make(
    cell: int, tile: tuple[int, int, int, int], width: int, mask_kind: int, causal: int, safe: int
) -> Callable[..., None]:
    """Return the kernel of an `AttentionVariant`. ``tile``: rows and keys of a block, rows and keys of a
    thread; ``width``: columns of v (and of y) of a block. ``mask_kind``: a `Mask`. ``safe``: rows without a
    key are zeros, not NaN.
    """
    scores = Tile(*tile)
    threads, tm, tn = scores.threads, scores.thread_rows, scores.thread_cols
    block_rows, block_keys = scores.rows, scores.cols
    outputs = Tile(block_rows, width, tm, width * tn // block_keys)
    tf = outputs.thread_cols
    run = DEPTH // cell
    q_loads, q_gap = block_rows * run // threads, threads // run
    k_loads, k_gap = block_keys * run // threads, threads // run
    v_cols = width // cell
    v_terms = threads // v_cols
    v_loads = DEPTH // v_terms
    q_step, k_step, v_step = block_rows + PAD, block_keys + PAD, width + PAD
    k_place = DEPTH * q_step
    slice_size = DEPTH * max(q_step + k_step, v_step)
    p_place = 2 * slice_size
    m_place = p_place + block_keys * q_step  # each row's largest score so far
    sum_place = m_place + block_rows  # each row's sum of exponentials
    scale_place = sum_place + block_rows  # each row's factor for the sums before the last block
    parts = threads // block_rows  # threads that share a row's softmax
    part_place = scale_place + block_rows
    part_keys = block_keys // parts
    shared_size = part_place + parts * block_rows
    places_size = threads * (q_loads + 1)
    acc_size, out_size = tm * tn, tm * tf
    most_floats = max(q_loads, k_loads, v_loads) * cell
    q_floats, k_floats, v_floats = q_loads * cell, k_loads * cell, v_loads * cell
    key_slices = block_keys // DEPTH
    row_gap, key_gap, col_gap = scores.row_gap, scores.col_gap, outputs.col_gap
    take, put = cell_access(cell)
    place = placement(scores)
    dot, weigh = products(scores), products(outputs)
    quad_cells = QUAD // cell
    assert threads % block_rows == DEPTH % v_terms == outputs.threads - threads == 0

    @device_function
    def scored(c, acc, shared, to, mask, flags, mask_at, mask_row, mask_col, row, key, rows, keys, scale):
        """Store score c of a thread, scaled and masked, in shared memory."""
        i, j = c // tn, c % tn
        below, beside = i // QUAD * row_gap + i % QUAD, j // QUAD * key_gap + j % QUAD
        m, n = i32(row + below), i32(key + beside)
        value = acc[c] * scale
        if causal and n > m:  # as a mask of -inf adds it: NaN and +inf come through as NaN
            value += LOWEST
        if mask_kind == ADDED and m < rows and n < keys:
            value += mask[np.uint32(mask_at + m * mask_row + n * mask_col)]
        if mask_kind == ALLOWED and m < rows and n < keys:
            seen = flags[np.uint32(mask_at + m * mask_row + n * mask_col)]
            value = value if seen else value + LOWEST
        if n >= keys:
            value = LOWEST
        shared[to + np.uint32(beside * q_step + below)] = value

    all_scored = unrolled(acc_size, scored)

    @device_function
    def rescaled(i, out, shared, row):
        """Rescale a thread's row i of the sums so far relative to the new largest score."""
        factor = shared[row + np.uint32(scale_place + i // QUAD * row_gap + i % QUAD)]
        for j in range(tf):
            out[i * tf + j] *= factor

    all_rescaled = unrolled(tm, rescaled)

    @device_function
    def finish(i, out, shared, values, y, first_row, row, col, rows, features, y_at, y_row):
        """Divide a thread's row i by its sum, and store it."""
        here = row + i // QUAD * row_gap + i % QUAD
        m = i32(first_row + here)
        if m < rows:
            total = shared[np.uint32(sum_place + here)]
            if safe and shared[np.uint32(m_place + here)] == LOWEST:
                total = f4(1.0)
            for c in range(tf // cell):
                n = col + c // quad_cells * col_gap + c % quad_cells * cell
                if n < features:
                    for e in range(cell):
                        values[e] = out[i * tf + c * cell + e] / total
                    put(y, y_at + m * y_row + n // cell, values, 0)

    all_finished = unrolled(tm, finish)

    def body(
        q, k, v, mask, flags, y, rows, keys, depth, features, row_tiles, n1, n2, q_axes0, q_axes1, q_axes2,
        k_axes0, k_axes1, k_axes2, v_axes0, v_axes1, v_axes2, mask_axes0, mask_axes1, mask_axes2, y_axes0,
        y_axes1, y_axes2, q_row, k_row, v_row, mask_row, mask_col, y_row, scale,
    ):  # fmt: skip
        shared = cuda.shared.array(shared_size, np.float32, alignment=16)
        # Values that stay the same from block to block but would take too many registers: LLVM would keep it
        # there
        places = cuda.shared.array(places_size, np.int32)
        acc = cuda.local.array(acc_size, np.float32)
        out = cuda.local.array(out_size, np.float32)
        fa = cuda.local.array(tm, np.float32)
        fb = cuda.local.array(tn, np.float32)
        fv = cuda.local.array(tf, np.float32)
        ga = cuda.local.array(most_floats, np.float32)
        gb = cuda.local.array(most_floats, np.float32)
        t = i32(cuda.threadIdx.x)
        matrix, row_tile = split(cuda.blockIdx.x, row_tiles)
        rest, at2 = split(matrix, n2)
        at0, at1 = split(rest, n1)
        q_at = i32(at0 * q_axes0 + at1 * q_axes1 + at2 * q_axes2)
        k_at = i32(at0 * k_axes0 + at1 * k_axes1 + at2 * k_axes2)
        v_at = i32(at0 * v_axes0 + at1 * v_axes1 + at2 * v_axes2)
        mask_at = i32(at0 * mask_axes0 + at1 * mask_axes1 + at2 * mask_axes2)
        y_at = i32(at0 * y_axes0 + at1 * y_axes1 + at2 * y_axes2)
        first_row, first_col = i32(row_tile * block_rows), i32(i32(cuda.blockIdx.y) * width)
        row, term = i32(t // run), i32(t % run)
        my_row, my_key, _, _ = place(t)
        my_row, my_key = i32(my_row), i32(my_key)
        v_term, v_col = i32(t // v_cols), i32(t % v_cols)
        v_from = i32(v_at + min(first_col // cell + v_col, features // cell - 1))
        q_to, k_to = i32(term * cell * q_step + row), i32(k_place + term * cell * k_step + row)
        p_to = np.uint32(p_place + my_key * q_step + my_row)
        v_to = i32(v_term * v_step + v_col * cell)
        stat_row, part = i32(t % block_rows), i32(t // block_rows)
        if part == 0:
            shared[np.uint32(m_place + stat_row)] = LOWEST
            shared[np.uint32(sum_place + stat_row)] = f4(0.0)
        end = keys
        if causal:
            # Beyond the last row's own key all weights are zero: there is nothing to add but NaN, from
            # infinities or NaN in v.
            seen = i32((first_row + (block_rows + block_keys - 1)) // block_keys * block_keys)
            nothing = f4(0.0)
            n = i32(seen + row)
            while n < keys:
                at = term
                while at < depth:
                    take(k, i32(k_at + n * k_row + at), gb, 0)
                    for e in range(cell):
                        nothing += gb[e] * f4(0.0)
                    at = i32(at + run)
                n = i32(n + k_gap)
            n = i32(seen + v_term)
            while n < keys:
                take(v, i32(v_from + n * v_row), gb, 0)
                for e in range(cell):
                    nothing += gb[e] * f4(0.0)
                n = i32(n + v_terms)
            if cuda.syncthreads_or(i32(nothing != nothing)) == 0:
                end = i32(min(keys, seen))
        for i in range(out_size):
            out[i] = f4(0.0)
        for i in range(q_loads):
            mine = i32(min(first_row + row + i * q_gap, rows - 1))
            places[np.uint32(t) + np.uint32(i * threads)] = i32(q_at + mine * q_row)
        places[np.uint32(t) + np.uint32(q_loads * threads)] = i32(first_row + my_row)
        slices = i32((depth + (run - 1)) // run)
        cuda.syncthreads()

        key = i32(-block_keys)
        while key < end - block_keys:
            key = i32(key + block_keys)
            for i in range(acc_size):
                acc[i] = f4(0.0)
            at = term
            s = i32(-1)
            while s < slices:
                s = i32(s + 1)
                if s < slices:
                    for i in range(q_floats):
                        ga[i] = f4(0.0)
                    for i in range(k_floats):
                        gb[i] = f4(0.0)
                    if at < depth:
                        for i in range(q_loads):
                            take(q, i32(places[np.uint32(t) + np.uint32(i * threads)] + at), ga, i * cell)
                        for i in range(k_loads):
                            n = min(key + row + i * k_gap, keys - 1)
                            take(k, i32(k_at + n * k_row + at), gb, i * cell)
                    at = i32(at + run)
                if s > 0:
                    here = i32((s + 1) % 2 * slice_size)
                    dot(0, acc, fa, fb, shared, np.uint32(here + my_row), np.uint32(here + k_place + my_key))
                if s < slices:
                    there = i32(s % 2 * slice_size)
                    for i in range(q_loads):
                        for e in range(cell):
                            shared[np.uint32(there + q_to) + np.uint32(e * q_step + i * q_gap)] = ga[
                                i * cell + e
                            ]
                    for i in range(k_loads):
                        for e in range(cell):
                            shared[np.uint32(there + k_to) + np.uint32(e * k_step + i * k_gap)] = gb[
                                i * cell + e
                            ]
                cuda.syncthreads()
            first = places[np.uint32(t) + np.uint32(q_loads * threads)]
            all_scored(
                0, acc, shared, p_to, mask, flags, mask_at, mask_row, mask_col, first, i32(key + my_key),
                rows, keys, scale,
            )  # fmt: skip
            cuda.syncthreads()

            # The softmax of BQ rows, with ``parts`` threads per row
            from_key = i32(p_place + part * (part_keys * q_step) + stat_row)
            most = LOWEST
            for n in range(part_keys):
                most = larger(most, shared[np.uint32(from_key + n * q_step)])
            shared[np.uint32(part_place + t)] = most
            before = shared[np.uint32(m_place + stat_row)]
            cuda.syncthreads()
            most = before
            for n in range(parts):
                most = larger(most, shared[np.uint32(part_place + n * block_rows + stat_row)])
            shift = f4(0.0) if most == LOWEST else most  # no key counts so far: all weights are zero
            total = f4(0.0)
            for n in range(part_keys):
                weight = exp(shared[np.uint32(from_key + n * q_step)] - shift)
                shared[np.uint32(from_key + n * q_step)] = weight
                total += weight
            cuda.syncthreads()
            shared[np.uint32(part_place + t)] = total
            cuda.syncthreads()
            if part == 0:
                factor = exp(before - shift)
                total = shared[np.uint32(sum_place + stat_row)] * factor
                for n in range(parts):
                    total += shared[np.uint32(part_place + n * block_rows + stat_row)]
                shared[np.uint32(sum_place + stat_row)] = total
                shared[np.uint32(scale_place + stat_row)] = factor
                shared[np.uint32(m_place + stat_row)] = most
            cuda.syncthreads()
            all_rescaled(0, out, shared, np.uint32(my_row))

            for s in range(key_slices + 1):
                if s < key_slices:
                    for i in range(v_floats):
                        ga[i] = f4(0.0)
                    for i in range(v_loads):
                        n = i32(key + s * DEPTH + v_term + i * v_terms)
                        if n < keys:
                            take(v, i32(v_from + n * v_row), ga, i * cell)
                if s > 0:
                    here = i32((s + 1) % 2 * slice_size)
                    weights = i32(p_place + (s - 1) * (DEPTH * q_step))
                    weigh(0, out, fa, fv, shared, np.uint32(weights + my_row), np.uint32(here + my_key))
                if s < key_slices:
                    there = i32(s % 2 * slice_size)
                    for i in range(v_loads):
                        for e in range(cell):
                            shared[np.uint32(there + v_to) + np.uint32(i * v_terms * v_step + e)] = ga[
                                i * cell + e
                            ]
                cuda.syncthreads()

        values = cuda.local.array(2, np.float32)
        all_finished(
            0, out, shared, values, y, first_row, my_row, i32(first_col + my_key), rows, features, y_at, y_row
        )

    return body


WIDE, MIDDLE, NARROW = ((32, 64, 4, 4), 128), ((64, 64, 8, 4), 64), ((64, 32, 8, 4), 32)
SAMPLES = [
    AttentionVariant(tile, width, int(kind), causal=1, safe=1)
    for (tile, width), kind in ((WIDE, Mask.NONE), (MIDDLE, Mask.ADDED), (NARROW, Mask.ALLOWED))
]


@kernel(Attention, threads=THREADS, registers=168, blocks=3, samples=SAMPLES)
def attention(tile, width, mask_kind, causal, safe):
    """Compute attention in cells of one float."""
    return _make(1, tile, width, mask_kind, causal, safe)


@kernel(AttentionPairs, threads=THREADS, registers=168, blocks=3, samples=SAMPLES)
def attention_pairs(tile, width, mask_kind, causal, safe):
    """Compute attention in cells of two floats."""
    return _make(2, tile, width, mask_kind, causal, safe)
