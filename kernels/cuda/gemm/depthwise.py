"""A depthwise convolution and the pointwise one after it in one launch: the intermediate stays in the block.

``y[m, n] = activate(sum over c of D[m, c] * w[n, c] + bias[n] + residual[m, n])`` with ``D[m, c] = act(b[c] +
sum over taps t, s of x[image, line*step + t, pixel*step + s, c] * taps[t, s, c])``: the second half of an
inverted residual block (arXiv 1801.04381), or a depthwise separable convolution. Unlike the prologues of
prologue.py this one reads several elements for each of A, so a block works in turns of ``DEEP`` channels: it
stores its ``BM x DEEP`` elements of D in shared memory, terms outermost, and the weights beside them; then it
multiplies from there. D has the same bits as from a kernel of its own (each sum over taps in order, beginning
with the bias), and y those of `gemm`: sums over channels are in order.

* **Rows.** A tile that is a run of pixels of a line would read three lines for one; so an image's pixels are
  counted strip by strip, ``pixels`` wide (the plan chooses that), line by line in each: a tile of 128 rows in
  a strip of 16 is 8 x 16 pixels, and reads 10 x 18. In the numbers of `gemm` a strip is a *plane*.
* **Loads.** A thread computes four pixels and two channels of D at once, ``run`` of the pixels side by side
  in a line, which share the overlap of their windows: a filter of 3x3 takes 18 reads of 8 bytes for four, not
  36. A warp reads 16 pairs of channels of two pixels: two lines of 128 bytes. Where windows are inside the
  image, there are no tests.
* **Bank conflicts.** D is stored four pixels at a time, 16 bytes: eight lanes, four pairs of channels by two
  runs of pixels, are all 32 banks, because terms are 4 modulo 16 floats apart. Weights are as in `tile.py`.
* **Occupancy.** Loads wait for memory, products wait for nothing, and a block does one after the other: an SM
  has two or more blocks, of at most 128 registers and 36 KB, whose turns interleave.
"""

import numpy as np

from bslite.kernels.contracts.cuda.gemm import Separable, SeparableVariant
from bslite.kernels.cuda.gemm import tensor as tensor_cores
from bslite.kernels.cuda.gemm import tile as multiply_adds
from bslite.kernels.cuda.gemm.access import cell_access, split, within
from bslite.kernels.cuda.gemm.store import store
from bslite.kernels.cuda.gemm.tile import DEPTH, QUAD, Tile, bounds
from bslite.kernels.cuda.math.functions import function_of
from bslite.kernels.cuda.math.libm import fma
from bslite.kernels.cuda.runtime.device import cuda, device_function, pair
from bslite.kernels.cuda.runtime.kernel import kernel

CELL = 2  # floats: everything is counted in pairs of channels, except ``cols``
DEEP = 32  # channels per turn
TALLEST = 8  # rows of a filter, at most: one bit each

i32, u32, f = np.int32, np.uint32, np.float32


@kernel(
    Separable,
    registers=168,
    bounds=bounds,
    samples=[
        SeparableVariant((128, 128, 8, 8), DEEP, 4, (3, 1), 1, "clamp", 1, 1, 1, "identity"),
        SeparableVariant((64, 64, 8, 4), DEEP, 2, (5, 1), 1, "silu", 1, 1, 0, "identity"),
        SeparableVariant((32, 64, 4, 4), DEEP, 1, (5, 2), 0, "silu", 1, 1, 0, "identity"),
        SeparableVariant((96, 64, 6, 8), DEEP, 4, (3, 1), 1, "clamp", 1, 1, 1, "identity", 1),
        SeparableVariant((64, 64, 8, 4), DEEP, 2, (5, 1), 1, "silu", 1, 1, 0, "identity", 1),
    ],
)
def gemm_depthwise(
    tile: tuple[int, int, int, int], deep: int, run: int, window: tuple[int, int], biased: int,
    before_code: str, scatter: int, bias: int, residual: int, code: str, tensor: int,
):  # fmt: skip
    """Compute the convolutions of a `SeparableVariant`; numbers are those of `gemm`, in pairs of channels.

    ``window``: columns of the depthwise filter, which has ``taps_h`` rows, and its step from pixel to pixel;
    no dilation. ``pixels`` is a multiple of ``run``, 1, 2 or 4. ``shifts [C]`` is the depthwise bias, if
    ``biased``; ``taps [taps, C]`` its weights; ``w [N, C]`` the pointwise ones. Blocks along z take parts of
    the sum over channels.
    """
    shape = Tile(*tile, tensor)
    threads, tm, tn = shape.threads, shape.thread_rows, shape.thread_cols
    block_rows, block_cols = shape.rows, shape.cols
    col_run, col_gap = shape.col_run, shape.col_gap
    (a_step, row_step), (b_step, col_step) = shape.steps_a, shape.steps_b
    a_slice, b_slice = shape.slices
    pairs, b_turns = deep // CELL, deep // DEPTH
    a_size = b_turns * a_slice
    shared_size, acc_size = a_size + b_turns * b_slice, tm * tn
    at_once = threads // pairs  # quads of rows that the block computes at once
    quads, runs = shape.rows // QUAD, QUAD // run
    spans = quads * runs
    slice_cells = DEPTH // CELL
    b_loads, b_gap = shape.cols * slice_cells // threads, threads // slice_cells
    b_floats = b_turns * b_loads * CELL
    tap_cols, step_w = window
    reach = (run - 1) * step_w + tap_cols  # columns that a run of pixels covers
    made_floats = QUAD * CELL
    line_floats, tap_floats = reach * CELL, tap_cols * CELL
    wide = ((1 << reach) - 1) << TALLEST
    take, _ = cell_access(CELL)
    act = function_of(before_code)
    way = tensor_cores if tensor else multiply_adds
    place, multiply, again = way.placement(shape), way.products(shape), multiply_adds.products(shape)
    (fa_size, fb_size), tries = shape.scratch, 2 if tensor else 1
    not_finite = tensor_cores.not_finite(acc_size)
    finish_rows = store(CELL, shape, scatter, residual, code, 1 if tensor else run)

    def lines_of(tested: int):
        """Return a device function that adds all rows of a run's windows to ``sums [run * CELL]``."""

        @device_function
        def window_of(x, taps, at, x_line, x_row, k, terms, taps_h, mask, seen, held, sums):
            tap_at = i32(k)
            for t in range(taps_h):
                line = i32(i32(mask >> t) & 1)  # whether this row is inside
                for c in range(reach):
                    place = i32(at + i32(c * x_row))
                    if tested:
                        inside = i32(mask >> (TALLEST + c)) & line
                        low, high = pair(x, u32(place if inside else 0))
                        seen[c * CELL] = low if inside else f(0.0)
                        seen[c * CELL + 1] = high if inside else f(0.0)
                    else:
                        take(x, place, seen, c * CELL)
                for s in range(tap_cols):
                    take(taps, tap_at, held, s * CELL)
                    tap_at = i32(tap_at + terms)
                for j in range(run):
                    for s in range(tap_cols):
                        for e in range(CELL):
                            value = seen[(j * step_w + s) * CELL + e]
                            sums[j * CELL + e] = fma(value, held[s * CELL + e], sums[j * CELL + e])
                at = i32(at + x_line)

        return window_of

    tested_window, free_window = lines_of(1), lines_of(0)

    @device_function
    def quad_of(
        i, x, taps, shifts, shared, to, bases, masks, k, x_line, x_row, terms, taps_h, free, seen, held, sums,
        made, a, b,
    ):  # fmt: skip
        """Compute four rows and two terms of D into shared memory."""
        for j in range(runs):
            for q in range(run):
                for e in range(CELL):
                    sums[q * CELL + e] = f(0.0)
                if biased:
                    take(shifts, k, sums, q * CELL)
            at = i32(bases[u32(i * runs + j)] + k)
            mask = masks[u32(i * runs + j)]
            if mask == free:
                free_window(x, taps, at, x_line, x_row, k, terms, taps_h, mask, seen, held, sums)
            else:
                tested_window(x, taps, at, x_line, x_row, k, terms, taps_h, mask, seen, held, sums)
            for q in range(run):
                for e in range(CELL):
                    made[e * QUAD + j * run + q] = act(sums[q * CELL + e], a, b)
        for e in range(CELL):
            for q in range(QUAD):
                shared[to + u32(e * a_step + q * row_step)] = made[e * QUAD + q]

    def gemm_depthwise(
        x, taps, shifts, w, biases, r, y, rows, cols, terms, chunk, col_tiles, y_split, w_row, x_image,
        x_line, x_row, start_h, start_w, step_h, have_h, have_w, taps_h, y_outer, y_inner, y_row, r_row,
        planes, lines, pixels, y_image, y_plane, y_line, r_image, r_plane, r_line, a, b, before_a, before_b,
    ):  # fmt: skip
        shared = cuda.shared.array(shared_size, np.float32, alignment=16)
        acc = cuda.local.array(acc_size, np.float32)
        fa = cuda.local.array(fa_size, np.float32)
        fb = cuda.local.array(fb_size, np.float32)
        gb = cuda.local.array(b_floats, np.float32)
        bases = cuda.shared.array(spans, np.int32)  # where the windows of each run of pixels begin
        masks = cuda.shared.array(spans, np.int32)  # which rows and columns of these are inside the image
        seen = cuda.local.array(line_floats, np.float32)
        held = cuda.local.array(tap_floats, np.float32)
        made = cuda.local.array(made_floats, np.float32)
        sums = cuda.local.array(made_floats, np.float32)
        b_base = cuda.local.array(b_loads, np.int32)
        t = i32(cuda.threadIdx.x)
        row_tile, col_tile = split(cuda.blockIdx.x, col_tiles)
        first_row, first_col = i32(row_tile * block_rows), i32(col_tile * block_cols)
        part = i32(cuda.blockIdx.z)
        last = i32(min(terms, part * chunk + chunk))

        free = i32(i32(i32(1) << i32(taps_h)) - 1 + wide)  # a run with all rows and columns inside
        for i in range(t, spans, threads):
            m = i32(first_row + i * run)
            rest, q = split(min(m, rows - 1), pixels)
            rest, p = split(rest, lines)
            image, strip = split(rest, planes)
            h = i32(p * step_h + start_h)
            v = i32(i32(strip * pixels + q) * step_w + start_w)
            mask = i32(0)
            for n in range(taps_h):
                if within(h + n, have_h):
                    mask |= i32(i32(1) << i32(n))
            for n in range(reach):
                if within(v + n, have_w):
                    mask |= i32(1 << (TALLEST + n))
            bases[u32(i)] = i32(image * x_image + h * x_line + v * x_row)
            masks[u32(i)] = mask if m < rows else i32(0)
        cuda.syncthreads()

        # The pair of channels of D that this thread computes, and the first four of its rows.
        mine = i32((t & 3) + ((t >> 3) % (pairs // 4)) * 4)
        group = i32(((t >> 2) & 1) + t // (2 * pairs) * 2)
        row, term = i32(t // slice_cells), i32(t % slice_cells)
        for i in range(b_loads):
            b_base[i] = i32(min(first_col + row + i * b_gap, cols - 1) * w_row + term)
        my_row, my_col, a_from, b_from = place(t)
        a_to = i32(mine // slice_cells * a_slice + mine % slice_cells * (CELL * a_step))
        b_to = u32(a_size + term * (CELL * b_step) + row * col_step)
        few_terms = i32(min(DEPTH, CELL * terms))
        for attempt in range(tries):
            for i in range(acc_size):
                acc[i] = f(0.0)
            for first in range(part * chunk, last, pairs):
                k = i32(first + mine)
                for i in range(group, quads, at_once):
                    to = u32(a_to + i * (QUAD * row_step))
                    if k < last:
                        quad_of(
                            i, x, taps, shifts, shared, to, bases, masks, k, x_line, x_row, terms, taps_h,
                            free, seen, held, sums, made, before_a, before_b,
                        )  # fmt: skip
                    else:
                        for e in range(CELL):
                            for q in range(QUAD):
                                shared[to + u32(e * a_step + q * row_step)] = f(0.0)
                for i in range(b_floats):
                    gb[i] = f(0.0)
                for s in range(b_turns):
                    if first + s * slice_cells + term < last:
                        for i in range(b_loads):
                            take(w, b_base[i] + i32(first + s * slice_cells), gb, (s * b_loads + i) * CELL)
                for s in range(b_turns):
                    for i in range(b_loads):
                        for e in range(CELL):
                            at = b_to + u32(s * b_slice + e * b_step + i * (b_gap * col_step))
                            shared[at] = gb[(s * b_loads + i) * CELL + e]
                cuda.syncthreads()
                turns = min(b_turns, (last - first + slice_cells - 1) // slice_cells)
                for s in range(turns):
                    a_at, b_at = u32(s * a_slice), u32(a_size + s * b_slice)
                    if tensor and attempt:
                        a_at, b_at = a_at + u32(my_row * row_step), b_at + u32(my_col * col_step)
                        again(few_terms, acc, fa, fb, shared, a_at, b_at)
                    else:
                        multiply(0, acc, fa, fb, shared, a_at + u32(a_from), b_at + u32(b_from))
                cuda.syncthreads()
            if tensor and attempt == 0 and not cuda.syncthreads_or(not_finite(acc)):
                break

        added = cuda.local.array(tn, np.float32)
        values = cuda.local.array(4, np.float32)
        places = cuda.local.array(2, np.int32)
        first_col += my_col
        for j in range(tn):
            n = first_col + j // col_run * col_gap + j % col_run
            added[j] = f(0.0)
            if bias and n < cols:
                added[j] = biases[u32(n)]
        finish_rows(
            0, places, acc, added, values, r, y, first_row + my_row, first_col, rows, cols,
            i32(part * y_split), y_row, r_row, pixels, lines, planes, y_image, y_plane, y_line,
            r_image, r_plane, r_line, a, b,
        )  # fmt: skip

    return gemm_depthwise
