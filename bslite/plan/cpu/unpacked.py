"""Products with a matrix that is a value, read once as it lies in memory, where packing it takes longer."""

import math
from typing import NamedTuple

from bslite.kernels.contracts.cpu.gemm import Unpacked
from bslite.kernels.contracts.cpu.sweep import UnpackedSweep
from bslite.kernels.contracts.record import Operand, Two
from bslite.machine import Machine
from bslite.passes import Layer
from bslite.plan.core.views import View
from bslite.plan.cpu.epilogue import epilogue
from bslite.plan.cpu.packing import Matrices
from bslite.plan.cpu.reduction import Reduction
from bslite.plan.cpu.step import CpuBuilder, step
from bslite.plan.cpu.tiling import line_tiling, max_rows

NEAR = 32  # terms that tiles read from the matrix itself, one panel after the other
ITEMS = 4  # for each thread


class Products(NamedTuple):
    """Two axes of products around one, of so many each; elements between those of x, of w and of y."""

    sizes: Two = (1, 1)
    x: Two = (0, 0)
    w: Two = (0, 0)
    y: Two = (0, 0)


ONE = Products()


def multiplied_unpacked(
    b: CpuBuilder, layer: Layer, x: View, m: Matrices, terms: Reduction, y: View, bias: View | None = None,
    around: Products = ONE,
) -> bool:  # fmt: skip
    """Append the step of ``y = x @ m + bias`` if that is quicker, else return False, without a step.

    The sums are those of ``terms``, and have the bits of the step that packs the matrix. ``x``, ``m`` and
    ``y`` are those of the first product of several ``around``.
    """
    machine, rows, count = b.machine, y.shape[0], math.prod(around.sizes)
    if b.around is not None or m.sizes != (1, 1, 1) or len(m.taps) > 1 or 1 not in (m.row, m.col):
        return False  # within a stack, a matrix is packed once for all images
    tiling = line_tiling(machine, rows, m.cols)
    part, column_bytes = terms.chunk_taps * terms.depth, 4 * tiling.width * machine.lanes
    most_panels, near = 1, min(part, machine.l2 // 4 // column_bytes)
    if m.col == 1:
        most_panels, near = machine.l2 // 16 // (rows * column_bytes), NEAR
    shared = tiling.panels * count // (ITEMS * machine.threads)
    block_panels = max(1, min(most_panels, tiling.panels, shared))
    blocks = -(-tiling.panels // block_panels)
    cycles = tiling.cycles * m.rows
    if not _quicker(machine, rows, m, near, blocks, tiling.panels, cycles, count):
        return False
    packed_at = block_panels * rows * column_bytes
    if bias is None:
        biases = Operand(b.const("bias_panels", channels=m.cols, lanes=machine.lanes, groups=1), 0)
    else:
        bias = b.arranged(bias, 0, exact=True)
        biases = bias.start
    n0, n1 = around.sizes
    x_of, w_of, y_of = ((4 * at[0], 4 * at[1]) for at in around[1:])
    record = Unpacked(
        x.start, Operand(m.memory.buffer, m.at), y.start, biases, n1, x_of, w_of, y_of,
        4 * x.strides[0], 4 * m.row, 4 * m.col, 4 * y.strides[0], rows, m.rows, m.cols, part, near,
        tiling.width, tiling.tail, tiling.panels, block_panels, blocks, packed_at,
        max_rows(machine, tiling.width), UnpackedSweep(tiling.width, max_rows(machine, tiling.width)),
        UnpackedSweep(tiling.tail, max_rows(machine, tiling.tail)), epilogue(layer.activation),
    )  # fmt: skip
    of = [View(v.buffer, v.offset, (n0, n1, *v.shape), (*at, *v.strides))
          for v, at in zip((x, m.memory, y), around[1:], strict=True)]  # fmt: skip
    reads = [*of[:2], *([bias] if bias else [])]
    step(b, record, count * blocks, reads, [of[2]], packed_at // 4 + near * column_bytes // 4)
    return True


def _quicker(
    machine: Machine, rows: int, m: Matrices, near: int, blocks: int, panels: int, cycles: float, count: int
) -> bool:
    """Whether writing panels and reading them again takes longer than what the step takes more, for each of
    ``count`` products.

    That is running sums from L2 and back at every ``near`` terms; the rows once for every panel from beyond
    L2, if they do not stay there; and threads without an item at the end. ``cycles``: those of one core.
    """
    t, matrix_bytes = machine.threads, 4 * m.rows * m.cols
    rate = machine.memory_bytes_per_cycle
    if 2 * count * matrix_bytes <= t * machine.l2:
        rate = machine.l2_bytes_per_cycle
    elif 2 * count * matrix_bytes <= machine.l3:
        rate = machine.l3_bytes_per_cycle
    packing = 3 * matrix_bytes / rate  # a line is read before it is written
    sums = 8 * rows * m.cols * (-(-m.rows // near)) / machine.l2_bytes_per_cycle
    again = 0.0
    if m.col != 1 and 4 * rows * m.rows > 0.4 * machine.l2:
        again = 4 * rows * m.rows * panels / machine.l3_bytes_per_cycle
    items = count * blocks
    idle = cycles * (-(-items // t) * t / items - 1)
    return packing > sums + again + idle
