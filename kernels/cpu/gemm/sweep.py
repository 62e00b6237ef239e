"""Microkernels along a line of output, which the conv kernels call through a pointer.

A line of Q output pixels is cut into equal register tiles of one or two heights (say 35 = 12 + 12 + 11), so
there is no remainder code and every tile runs near the full rate. One kernel holds the tiles of all heights
of a panel width, so that no image size ever needs another compilation.
"""

import functools

from numba import types

from bslite.kernels.contracts.cpu.sweep import DepthwiseSweep, GemmSweep, Narrow, Widen
from bslite.kernels.cpu.gemm.across_tile import across_tile
from bslite.kernels.cpu.gemm.depthwise_tile import depthwise_tile
from bslite.kernels.cpu.gemm.tile import gemm_tile
from bslite.kernels.cpu.runtime.compile import Kernel, caller, makes
from bslite.kernels.cpu.vector.halves import load_weights
from bslite.kernels.cpu.vector.memory import load_scalar
from bslite.kernels.cpu.vector.simd import BYTES, LANES, primitive, store_ir

call_gemm_sweep = caller(22)
call_depthwise_sweep = caller(25)
call_widen = caller(3)


@makes(GemmSweep)
@functools.cache
def gemm_sweep(
    vecs: int,
    most: int,
    fetches: bool = True,
    dots: bool = False,
    across: bool = False,
    narrow: Narrow = Narrow.NO,
) -> Kernel:
    """A kernel of ``tiles`` neighbouring GEMM tiles, each ``rows`` (at most ``most``) pixels by ``vecs``
    registers of channels; with ``across``, by ``vecs`` channels.
    """
    tile = across_tile(vecs, most) if across else gemm_tile(vecs, most, fetches, dots, narrow)

    def sweep(rows, tiles, a, a_col, offsets, taps, depth, b, c, c_col, bias, resume, residual, residual_col,
              clamp, last, ahead, share, kept, place, place_col, flag):  # fmt: skip
        lo, hi = load_scalar(clamp), load_scalar(clamp + 8)
        for _ in range(tiles):
            tile(rows, a, a_col, offsets, taps, depth, b, c, c_col, bias, resume, residual, residual_col,
                 lo, hi, last, ahead, kept, place, place_col, flag)  # fmt: skip
            ahead += share
            a += rows * a_col
            c += rows * c_col
            residual += rows * residual_col  # both are 0 where there is no residual
            place += rows * place_col  # and here where no cells are stored

    name = f"gemm_sweep_{most}x{vecs}" + "_alone" * (not fetches) + "_dots" * dots + "_across" * across
    return Kernel(sweep, name + f"_{narrow.name.lower()}" * (narrow > 0), 22)


@makes(Widen)
@functools.cache
def widen(narrow: Narrow) -> Kernel:
    """A kernel that writes ``count`` registers of weights as float32."""

    @primitive(types.void, types.int64, types.int64)
    def move(builder, source, target):
        store_ir(builder, target, load_weights(builder, source, narrow))

    each = narrow.bytes * LANES

    def run(source, count, target):
        for _ in range(count):
            move(source, target)
            source += each
            target += BYTES

    return Kernel(run, f"widen_{narrow.name.lower()}", 3)


@makes(DepthwiseSweep)
@functools.cache
def depthwise_sweep(
    taps: int, stride: int, most: int, deep: bool = False, cells: bool = False, grouped: bool = False
) -> Kernel:
    """A kernel of ``tiles`` neighbouring tiles of ``rows`` (at most ``most``) pixels by one channel register.

    Weights of the next register of channels lie ``w_step`` bytes on, its inputs ``x_step``. For filters
    ``taps`` wide with stride ``stride`` and dilation 1; both 0: for any. ``deep``: for filters of several
    planes. ``grouped``: for groups of a few channels.
    """
    tile = depthwise_tile(taps, stride, most, deep, cells, grouped)

    def sweep(rows, tiles, registers, x, x_col, x_tap, x_row, filter_rows, filter_cols, w, w_step, y, y_col,
              bias, clamp, last, planes, x_deep, kept, place, place_col, flag, x_step, inputs,
              outputs):  # fmt: skip
        lo, hi = load_scalar(clamp), load_scalar(clamp + 8)
        for _ in range(tiles):
            for r in range(registers):
                lanes = last if r == registers - 1 else LANES
                at = r * BYTES
                tile(rows, x + r * x_step, x_col, x_tap, x_row, filter_rows, filter_cols, w + r * w_step,
                     y + at, y_col, bias + at, lo, hi, lanes, planes, x_deep, kept, place + at // 2,
                     place_col, flag, inputs, outputs)  # fmt: skip
            x += rows * x_col
            y += rows * y_col
            place += rows * place_col

    name = f"depthwise_sweep_{taps}_{stride}_{most}" + "_deep" * bool(deep) + "_cells" * cells
    return Kernel(sweep, name + "_grouped" * grouped, 25)
