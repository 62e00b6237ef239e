"""Steps of the CPU that resize, and their tables."""

import struct

from bslite.kernels.contracts.cpu.resize import Resample, ResizeLinear, ResizeNearest
from bslite.kernels.contracts.record import Operand
from bslite.ops.resized.resampling import Taps
from bslite.plan.core.views import View, size_of
from bslite.plan.cpu.sharing import share_image, share_rows
from bslite.plan.cpu.step import CpuBuilder, step


def _bits(x: float) -> int:
    """``x`` as float32 in the low half of a cell, which is how kernels read a float from a table."""
    return int(struct.unpack("I", struct.pack("f", x))[0])


def resample_step(b: CpuBuilder, x: View, y: View, axis: int, table: Taps) -> None:
    """Append a step that resizes one axis; x and y are dense."""
    lines, inner = size_of(y.shape[: axis + 1]), size_of(y.shape[axis + 1 :])
    taps = len(table[0])
    item_lines, items = share_rows(b.machine, lines, lines * taps * (8.0 + inner / b.machine.lanes))
    cells = [cell for line in table for tap in line for cell in (tap.line, _bits(tap.weight))]
    record = Resample(
        x.start, y.start, Operand(b.const("offsets", values=cells), 0), x.shape[axis], y.shape[axis], inner,
        taps, lines, item_lines,
    )  # fmt: skip
    step(b, record, items, [x], [y])


def resize_step(b: CpuBuilder, x: View, y: View, rows: Taps, cols: Taps) -> None:
    """Append a step that resizes images, with a table of rows and one of columns."""
    n, channels, lines, pixels = y.shape
    tables = []
    for table, stride in ((rows, 4 * x.strides[2]), (cols, 4 * x.strides[3])):
        cells: list[int] = []
        for taps in table:
            cells += [stride * tap.line for tap in taps]
            cells += [_bits(tap.weight) for tap in taps] if len(taps) == 2 else []
        tables.append(Operand(b.const("offsets", values=cells), 0))
    registers = -(-channels // b.machine.lanes)
    shares = share_image(b.machine, n, lines, channels, 10.0 * n * registers * lines * pixels)
    kind = ResizeNearest if len(rows[0]) == 1 else ResizeLinear
    record = kind(
        x.start, y.start, *tables, x_image=4 * x.strides[0], y_image=4 * y.strides[0],
        y_line=4 * y.strides[2], y_pixel=4 * y.strides[3], lines=lines, pixels=pixels, channels=channels,
        shares=shares,
    )  # fmt: skip
    step(b, record, n * shares.bands * shares.blocks, [x], [y])
