"""Launches that resize images, and their tables."""

from collections.abc import Sequence

from bslite.kernels.contracts.cuda.resize import Resample, ResampleVariant, ResizeImage, ResizeImageVariant
from bslite.kernels.contracts.record import Operand
from bslite.ops.resized.resampling import Taps
from bslite.plan.core.views import View, size_of
from bslite.plan.cuda.launch import CudaBuilder, launch
from bslite.plan.cuda.rows import block_threads

EACH = 4  # elements per thread


def _tables(b: CudaBuilder, lines: Sequence[int], weights: Sequence[float]) -> tuple[Operand, Operand]:
    return Operand(b.const("cells", values=list(lines)), 0), Operand(
        b.const("numbers", values=list(weights)), 0
    )


def resample_step(b: CudaBuilder, x: View, y: View, axis: int, table: Taps) -> None:
    """Append a resizing along one axis of dense views."""
    total, threads = size_of(y.shape), block_threads(b)
    taps = [tap for line in table for tap in line]
    tables = _tables(b, [tap.line for tap in taps], [tap.weight for tap in taps])
    record = Resample(
        x.start, y.start, *tables, total, x.shape[axis], y.shape[axis], size_of(y.shape[axis + 1 :]),
        len(table[0]),
    )  # fmt: skip
    variant = ResampleVariant(threads, int(len(table[0]) == 1))
    launch(b, record, variant, [-(-total // (threads * EACH))], [threads], [x], [y])


def resize_step(b: CudaBuilder, x: View, y: View, rows: Taps, cols: Taps) -> None:
    """Append a resizing of images from two rows and two columns per pixel; in nearest mode these coincide."""
    total, threads, linear = size_of(y.shape), block_threads(b), len(rows[0]) == 2
    places, parts = [], []
    for table in (rows, cols):
        weights = [tap.weight for taps in table for tap in taps] if linear else [0.0]
        place, part = _tables(b, [tap.line for taps in table for tap in (taps[0], taps[-1])], weights)
        places.append(place)
        parts.append(part)
    (xi, _, xl, xp), (yi, _, yl, yp) = x.strides, y.strides
    record = ResizeImage(x.start, y.start, *places, *parts, total, *y.shape[1:], xi, xl, xp, yi, yl, yp)
    variant = ResizeImageVariant(threads, int(linear))
    launch(b, record, variant, [-(-total // (threads * EACH))], [threads], [x], [y])
