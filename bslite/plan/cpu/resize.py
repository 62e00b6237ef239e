"""Steps of the CPU that resize, and their tables."""

import struct
from collections.abc import Sequence

from bslite.kernels.contracts.cpu.resize import Resample, ResizeLinear, ResizeNearest, ResizePlanes
from bslite.kernels.contracts.record import Operand
from bslite.ops.resized.resampling import Taps
from bslite.plan.core.views import View, size_of
from bslite.plan.cpu.sharing import share_image, share_planes, share_rows
from bslite.plan.cpu.step import CpuBuilder, step


def _bits(x: float) -> int:
    """``x`` as float32 in the low half of a cell, which is how kernels read a float from a table."""
    return int(struct.unpack("I", struct.pack("f", x))[0])


def resample_step(b: CpuBuilder, x: View, y: View, axis: int, table: Taps) -> None:
    """Append a step that resizes one axis. The axes after it are contiguous; those before it are one, or all
    are dense.
    """
    lines, inner = size_of(y.shape[: axis + 1]), size_of(y.shape[axis + 1 :])
    x_image, y_image = (4 * v.strides[axis - 1] if axis else 0 for v in (x, y))
    taps = len(table[0])
    item_lines, items = share_rows(b.machine, lines, lines * taps * (8.0 + inner / b.machine.lanes))
    x_line = 4 * x.strides[axis]
    cells = [cell for line in table for tap in line for cell in (x_line * tap.line, _bits(tap.weight))]
    record = Resample(
        x.start, y.start, Operand(b.const("offsets", values=cells), 0), x_image, y_image, 4 * y.strides[axis],
        y.shape[axis], inner, taps, lines, item_lines,
    )  # fmt: skip
    step(b, record, items, [x], [y])


def resize_planes(b: CpuBuilder, x: View, y: View, rows: Taps, cols: Taps) -> None:
    """Append a step that resizes planes of contiguous pixels, with a table of rows and one of columns."""
    n, channels, lines, pixels = y.shape
    (xi, xk, xl, _), (yi, yk, yl, _), width = x.strides, y.strides, x.shape[3]
    lanes = b.machine.lanes
    cells = [cell for line in rows for tap in line for cell in (4 * xl * tap.line, _bits(tap.weight))]
    columns, picks = _columns(cols, width, lanes)
    registers = -(-pixels // lanes)
    cycles = n * channels * lines * registers * (4.0 + picks * (2.0 * len(rows[0]) + 2.0 * len(cols[0])))
    shares, items = share_planes(b.machine, n * channels, lines, cycles)
    record = ResizePlanes(
        x.start, y.start, Operand(b.const("offsets", values=cells), 0),
        Operand(b.const("offsets", values=columns), 0), x_image=4 * xi, x_channel=4 * xk, y_image=4 * yi,
        y_channel=4 * yk, y_line=4 * yl, channels=channels, shares=shares, width=width, lines=lines,
        pixels=pixels, row_taps=len(rows[0]), col_taps=len(cols[0]), picks=picks,
    )  # fmt: skip
    step(b, record, items, [x], [y], scratch=picks * lanes)


def _columns(cols: Taps, width: int, lanes: int) -> tuple[list[int], int]:
    """The cells of `ResizePlanes.cols`, and the loads that the register with most of them needs."""
    last, most = max(0, len(cols) - lanes), max(0, width - lanes)
    registers = []
    for begin in range(0, len(cols), lanes):
        first = min(last, begin)
        taken = [*cols[first : first + lanes]]
        taken += taken[-1:] * (lanes - len(taken))
        registers.append(taken)
    loads = [_loads([tap.line for pixel in taken for tap in pixel], most, lanes) for taken in registers]
    picks = max(map(len, loads))
    nowhere = struct.pack(f"{lanes}i", *[-1] * lanes)
    cells = bytearray()
    for taken, firsts in zip(registers, loads, strict=True):
        missing = picks - len(firsts)
        for taps in zip(*taken, strict=True):
            for first in firsts:
                held = range(first, first + lanes)
                cells += struct.pack(f"{lanes}i", *(t.line - first if t.line in held else -1 for t in taps))
            cells += nowhere * missing
            cells += struct.pack(f"{lanes}f", *(tap.weight for tap in taps))
        cells += struct.pack(f"{picks}q", *(4 * first for first in firsts), *[0] * missing)
        cells += bytes(-len(cells) % (4 * lanes))
    return list(struct.unpack(f"{len(cells) // 8}q", cells)), picks


def _loads(lines: Sequence[int], most: int, lanes: int) -> list[int]:
    """Where the registers of a line begin that hold these elements: none after ``most``."""
    found, left = [], set(lines)
    while left:
        found.append(min(most, *left))
        left.difference_update(range(found[-1], found[-1] + lanes))
    return found


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
