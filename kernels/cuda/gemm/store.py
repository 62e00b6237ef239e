"""The epilogue of the GPU's batch-reduce GEMMs: bias, residual, activation, and the place of a row."""

from collections.abc import Callable

import numpy as np

from bslite.kernels.cuda.gemm.access import cell_access, split
from bslite.kernels.cuda.gemm.tile import Tile, unrolled
from bslite.kernels.cuda.math.functions import function_of
from bslite.kernels.cuda.runtime.device import device_function

i32 = np.int32  # Numba widens sums and products of int32 to int64


def store(cell: int, shape: Tile, scatter: int, residual: int, code: str) -> Callable[..., None]:
    """Return a device function that stores a thread's rows of the tile: ``y = activate(acc + sums +
    residual)``.

    Its first argument is 0. ``acc [TM * TN]``; ``sums [TN]``: the summand of each column; ``values [4]`` is
    scratch. Row m lies at ``m * y_row`` or, with ``scatter``, is ``[image, plane, line,
    pixel]`` with a stride for each; so does the residual's. ``first_row``, ``first_col`` are the thread's, in
    the product. ``cell``: floats moved at once.
    """
    tm, tn = shape.thread_rows, shape.thread_cols
    row_run, row_gap, col_gap = shape.row_run, shape.row_gap, shape.col_gap
    run_cells = shape.col_run // cell
    take, put = cell_access(cell)
    activate = function_of(code)

    @device_function
    def finish_cell(c, i, acc, sums, first_col, cols, at, r_at, values, y, r, act_a, act_b):
        """Apply the epilogue to cell c of a thread's row i, and store it."""
        n = first_col + c // run_cells * col_gap + c % run_cells * cell
        if n < cols:
            for e in range(cell):
                values[e] = acc[i * tn + c * cell + e] + sums[c * cell + e]
            if residual:
                take(r, r_at + n // cell, values, cell)
                for e in range(cell):
                    values[e] += values[cell + e]
            for e in range(cell):
                values[e] = activate(values[e], act_a, act_b)
            put(y, at + n // cell, values, 0)

    finish_cells = unrolled(tn // cell, finish_cell)

    @device_function
    def finish_row(
        i, acc, sums, values, r, y, first_row, first_col, rows, cols, y_at, y_row, r_row,
        pixels, lines, planes, y_image, y_plane, y_line, r_image, r_plane, r_line, act_a, act_b,
    ):  # fmt: skip
        m = i32(first_row + i // row_run * row_gap + i % row_run)
        if m < rows:
            if scatter:
                rest, q = split(m, pixels)
                rest, p = split(rest, lines)
                image, d = split(rest, planes)
                at = i32(y_at + image * y_image + d * y_plane + p * y_line + q * y_row)
                r_at = i32(image * r_image + d * r_plane + p * r_line + q * r_row)
            else:
                at, r_at = i32(y_at + m * y_row), i32(m * r_row)
            finish_cells(0, i, acc, sums, first_col, cols, at, r_at, values, y, r, act_a, act_b)

    return unrolled(tm, finish_row)
