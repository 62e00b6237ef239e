"""Batch-reduce GEMM: convolution of any filter, linear layers and matrix products.

``y[m, n] = activate(sum over k of A[m, k] * w[n, k] + bias[n] + residual[m, n])``: rows m are the pixels of
all images, columns n output channels, and the sum goes over all taps and channels of a filter. No patch of
the image is copied: the place of A's element is computed from the tap (arXiv 1906.06440's batch-reduce, with
the sum in registers; as "implicit GEMM" in arXiv 1410.0759). `tile.py` explains a block, `tensor.py` products
on tensor cores, `prologue.py` the functions of A's elements on load, `store.py` the epilogue.

Two kernels share this source: ``gemm_pairs`` moves 8 bytes at a time and counts everything in *cells* of two
floats (channels, strides and offsets are even); ``gemm`` takes odd sizes, in cells of one.
"""

from collections.abc import Callable

import numpy as np

from bslite.kernels.contracts.cuda.gemm import AFFINE, GATE, NONE, Gemm, GemmPairs, GemmVariant
from bslite.kernels.cuda.gemm import tensor as tensor_cores
from bslite.kernels.cuda.gemm import tile as multiply_adds
from bslite.kernels.cuda.gemm.access import cell_access, split, within
from bslite.kernels.cuda.gemm.prologue import factors, prologue
from bslite.kernels.cuda.gemm.store import store
from bslite.kernels.cuda.gemm.tile import DEPTH, Tile, bounds
from bslite.kernels.cuda.runtime.device import cuda, device_function
from bslite.kernels.cuda.runtime.kernel import kernel

i32 = np.int32  # Numba widens sums and products of int32 to int64


def _make(
    cell: int, tile: tuple[int, int, int, int], window: int, across: int, scatter: int, bias: int,
    residual: int, code: str, before: str, before_code: str, tensor: int,
) -> Callable[..., None]:  # fmt: skip
    """Return the kernel of a `GemmVariant`; numbers are in cells."""
    shape = Tile(*tile, tensor)
    threads = shape.threads
    tm, tn = shape.thread_rows, shape.thread_cols
    run = DEPTH // cell  # cells of a row's slice
    a_loads, a_gap = shape.rows * run // threads, threads // run
    b_loads, b_gap = shape.cols * run // threads, threads // run
    col_cells = shape.cols // cell
    b_terms = threads // col_cells  # ``across``: terms that are loaded at once
    (a_step, row_step), (b_step, col_step) = shape.steps_a, shape.steps_b
    a_size, b_size = shape.slices
    slice_size, acc_size = a_size + b_size, tm * tn
    shared_size = 2 * slice_size
    a_floats, b_floats = a_loads * cell, b_loads * cell
    col_run, col_gap = shape.col_run, shape.col_gap
    prepared, gated = before != NONE, before == GATE
    factor_floats = factors(before, cell, a_loads)
    take, _ = cell_access(cell)
    fetch, apply = prologue(before, cell, a_loads, before_code)
    finish_rows = store(cell, shape, scatter, residual, code)
    units = tensor_cores if tensor else multiply_adds
    place, multiply, again = units.placement(shape), units.products(shape), multiply_adds.products(shape)
    (fa_size, fb_size), tries = shape.scratch, 2 if tensor else 1
    not_finite = tensor_cores.not_finite(acc_size)
    deep = window == 3
    block_rows, block_cols = shape.rows, shape.cols

    @device_function
    def store_a(shared, at, ga):
        for i in range(a_loads):
            for e in range(cell):
                shared[at + np.uint32(e * a_step + i * (a_gap * row_step))] = ga[i * cell + e]

    @device_function
    def store_b(shared, at, gb):
        for i in range(b_loads):
            for e in range(cell):
                if across:
                    shared[at + np.uint32(i * b_terms * b_step + e * col_step)] = gb[i * cell + e]
                else:
                    shared[at + np.uint32(e * b_step + i * (b_gap * col_step))] = gb[i * cell + e]

    def body(
        x, w, biases, r, y, scale, shift, rows, cols, terms, chunk, col_tiles, inner, x_outer, x_inner,
        w_outer, w_inner, bias_inner, y_split, x_row, w_row, x_image, x_plane, x_line, start_d, start_h,
        start_w, step_d, step_h, step_w, have_d, have_h, have_w, taps_h, taps_w, next_d, next_h, next_w,
        depth, y_outer, y_inner, y_row, r_row, planes, lines, pixels, y_image, y_plane, y_line, r_image,
        r_plane, r_line, a, b, gate_image, before_a, before_b,
    ):  # fmt: skip
        shared = cuda.shared.array(shared_size, np.float32, alignment=16)
        acc = cuda.local.array(acc_size, np.float32)
        fa = cuda.local.array(fa_size, np.float32)
        fb = cuda.local.array(fb_size, np.float32)
        ga = cuda.local.array(a_floats, np.float32)
        gb = cuda.local.array(b_floats, np.float32)
        a_base = cuda.local.array(a_loads, np.int32)
        a_d = cuda.local.array(a_loads, np.int32)
        a_h = cuda.local.array(a_loads, np.int32)
        a_w = cuda.local.array(a_loads, np.int32)
        b_base = cuda.local.array(b_loads, np.int32)
        gates = cuda.local.array(a_loads, np.int32)  # this and the following arrays serve a prologue
        factor = cuda.local.array(factor_floats, np.float32)
        summand = cuda.local.array(cell, np.float32)
        t = i32(cuda.threadIdx.x)
        row_tile, col_tile = split(cuda.blockIdx.x, col_tiles)
        outer_at, inner_at = split(cuda.blockIdx.y, inner)
        first_row, first_col = i32(row_tile * block_rows), i32(col_tile * block_cols)
        row, term = i32(t // run), i32(t % run)
        part = i32(cuda.blockIdx.z)
        last = i32(min(terms, part * chunk + chunk))

        # Places beyond the last row or column repeat that row or column, and are never stored.
        x_at = i32(outer_at * x_outer + inner_at * x_inner)
        for i in range(a_loads):
            m = i32(min(first_row + row + i * a_gap, rows - 1))
            if gated:
                image, _ = split(m, i32(i32(planes * lines) * pixels))
                gates[i] = i32(image * gate_image)
            if window:
                m, q = split(m, pixels)
                m, p = split(m, lines)
                h, v = i32(p * step_h + start_h), i32(q * step_w + start_w)
                at = i32(x_at + h * x_line + v * x_row)
                if deep:
                    m, d = split(m, planes)
                    a_d[i] = d * step_d + start_d
                    at = i32(at + a_d[i] * x_plane)
                a_h[i] = h
                a_w[i] = v
                a_base[i] = i32(at + m * x_image)
            else:
                a_base[i] = x_at + m * x_row
        w_at = outer_at * w_outer + inner_at * w_inner
        for i in range(b_loads):
            if across:
                n = min(first_col // cell + t % col_cells, cols // cell - 1)
                b_base[i] = w_at + n
            else:
                n = min(i32(first_col + row + i * b_gap), i32(cols - 1))
                b_base[i] = i32(w_at + n * w_row)
        end_w, end_h = i32(taps_w * next_w), i32(taps_h * next_h)
        my_row, my_col, a_at, b_at = place(t)  # of the tile's sums; cells of a slice that are read first
        a_to = i32(term * (cell * a_step) + row * row_step)
        b_to = i32(a_size + term * (cell * b_step) + row * col_step)
        if across:
            b_to = i32(a_size + t // col_cells * b_step + t % col_cells * (cell * col_step))
        there, few_terms = i32(0), i32(min(DEPTH, cell * terms))
        slices = i32((last - part * chunk + (run - 1)) // run)
        for attempt in range(tries):
            k = i32(part * chunk + term)
            channel, tap_w, tap_h, tap_d = k, i32(0), i32(0), i32(0)
            if window:
                tap, channel = split(k, depth)
                tap, tap_w = split(tap, taps_w)
                tap_d, tap_h = split(tap, taps_h)
                tap_w, tap_h, tap_d = i32(tap_w * next_w), i32(tap_h * next_h), i32(tap_d * next_d)
            for i in range(acc_size):
                acc[i] = np.float32(0.0)

            to = i32(0)  # one slice of shared memory is written while the other is read
            for s in range(slices + 1):
                if s < slices:  # the next slice goes into registers
                    for i in range(a_floats):
                        ga[i] = np.float32(0.0)
                    for i in range(b_floats):
                        gb[i] = np.float32(0.0)
                    there = i32(0)  # bit i is set where cell i of A exists
                    if window:
                        offset = i32(tap_h * x_line + tap_w * x_row + channel)
                        if deep:
                            offset = i32(offset + tap_d * x_plane)
                        for i in range(a_loads):
                            inside = (
                                k < last and within(a_h[i] + tap_h, have_h) and within(a_w[i] + tap_w, have_w)
                            )
                            if deep:
                                inside = inside and within(a_d[i] + tap_d, have_d)
                            if inside:
                                take(x, a_base[i] + offset, ga, i * cell)
                                there = i32(there | i32(1 << i))
                        if prepared and k < last:
                            fetch(scale, shift, gates, channel, factor, summand)
                        channel = i32(channel + run)
                        while channel >= depth:
                            channel = i32(channel - depth)
                            tap_w = i32(tap_w + next_w)
                            if tap_w == end_w:
                                tap_w = i32(0)
                                tap_h = i32(tap_h + next_h)
                                if deep and tap_h == end_h:
                                    tap_h = i32(0)
                                    tap_d = i32(tap_d + next_d)
                    else:
                        for i in range(a_loads):
                            if k < last:
                                take(x, a_base[i] + k, ga, i * cell)
                                there = i32(there | i32(1 << i))
                        if prepared and k < last:
                            fetch(scale, shift, gates, k, factor, summand)
                    for i in range(b_loads):
                        if across:
                            kk = i32((k - term) * cell + t // col_cells + i * b_terms)
                            if kk < i32(last * cell):
                                take(w, b_base[i] + kk * w_row, gb, i * cell)
                        elif k < last:
                            take(w, b_base[i] + k, gb, i * cell)
                    k = i32(k + run)
                if s > 0:
                    here = i32(slice_size - to)
                    if tensor and attempt:
                        a_here = np.uint32(here + my_row * row_step)
                        b_here = np.uint32(here + a_size + my_col * col_step)
                        again(few_terms, acc, fa, fb, shared, a_here, b_here)
                    else:
                        a_here, b_here = np.uint32(here + a_at), np.uint32(here + a_size + b_at)
                        multiply(0, acc, fa, fb, shared, a_here, b_here)
                if s < slices:
                    if prepared:
                        apply(ga, there, factor, summand, before_a, before_b)
                    a_there, b_there = np.uint32(to + a_to), np.uint32(to + b_to)
                    if tensor and cell == 2:
                        a_there = a_there & tensor_cores.EVEN
                        if not across:
                            b_there = b_there & tensor_cores.EVEN
                    store_a(shared, a_there, ga)
                    store_b(shared, b_there, gb)
                to = i32(slice_size - to)
                cuda.syncthreads()
            if tensor and attempt == 0 and not cuda.syncthreads_or(not_finite(acc)):
                break

        sums = cuda.local.array(tn, np.float32)
        values = cuda.local.array(4, np.float32)
        first_col += my_col
        for j in range(tn):
            n = first_col + j // col_run * col_gap + j % col_run
            sums[j] = np.float32(0.0)
            if bias and n < cols:
                sums[j] = biases[np.uint32(inner_at * bias_inner + n)]
        y_at = i32(outer_at * y_outer + inner_at * y_inner + part * y_split)
        finish_rows(
            0, acc, sums, values, r, y, first_row + my_row, first_col, rows, cols, y_at,
            y_row, r_row, pixels, lines, planes, y_image, y_plane, y_line, r_image, r_plane, r_line, a, b,
        )  # fmt: skip

    return body


LARGE, WIDE, MIDDLE, SMALL = (128, 128, 8, 8), (96, 64, 6, 8), (64, 64, 8, 4), (32, 32, 4, 4)


@kernel(Gemm, registers=168, bounds=bounds, samples=[
    GemmVariant(LARGE, bias=1), GemmVariant(LARGE, 2, bias=1), GemmVariant(SMALL, 2, bias=1, code="silu"),
    GemmVariant(SMALL, 3, scatter=1, bias=1),
    GemmVariant(LARGE, 2, bias=1, before=AFFINE, before_code="relu"),
    GemmVariant(SMALL, 2, bias=1, code="relu", tensor=1), GemmVariant(SMALL, across=1, tensor=1),
])  # fmt: skip
def gemm(tile, window, across, scatter, bias, residual, code, before, before_code, tensor):
    """Compute a product in cells of one float: a slice of a row is 8 lanes of 4 bytes."""
    return _make(1, tile, window, across, scatter, bias, residual, code, before, before_code, tensor)


@kernel(GemmPairs, registers=168, bounds=bounds, samples=[
    GemmVariant(LARGE, bias=1), GemmVariant(LARGE, across=1),
    GemmVariant(LARGE, 2, bias=1, residual=1, code="relu"),
    GemmVariant(LARGE, 3, scatter=1, bias=1, residual=1, code="silu"),
    GemmVariant(MIDDLE, 2, bias=1, code="relu"),
    GemmVariant(SMALL, bias=1), GemmVariant(SMALL, 2, bias=1, residual=1),
    GemmVariant(LARGE, bias=1, before=AFFINE, before_code="relu"),
    GemmVariant(LARGE, bias=1, residual=1, before=GATE),
    GemmVariant(WIDE, across=1, tensor=1), GemmVariant(WIDE, 2, bias=1, residual=1, code="relu", tensor=1),
    GemmVariant(MIDDLE, 2, bias=1, code="relu", tensor=1), GemmVariant(SMALL, bias=1, tensor=1),
    GemmVariant(WIDE, bias=1, before=AFFINE, before_code="relu", tensor=1),
])  # fmt: skip
def gemm_pairs(tile, window, across, scatter, bias, residual, code, before, before_code, tensor):
    """Compute a product in cells of two floats: a slice of a row is 4 lanes of 8 bytes."""
    return _make(2, tile, window, across, scatter, bias, residual, code, before, before_code, tensor)
