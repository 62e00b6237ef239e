"""Products with a matrix that is a value, read once as it lies in memory, where packing it takes longer."""

from bslite.kernels.contracts.cpu.gemm import Unpacked
from bslite.kernels.contracts.cpu.sweep import UnpackedSweep
from bslite.kernels.contracts.record import Operand
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


def multiplied_unpacked(
    b: CpuBuilder, layer: Layer, x: View, m: Matrices, terms: Reduction, y: View, bias: View | None = None
) -> bool:
    """Append the step of ``y = x @ m + bias`` if that is quicker, else return False, without a step.

    The sums are those of ``terms``, and have the bits of the step that packs the matrix.
    """
    machine, rows = b.machine, y.shape[0]
    if b.around is not None or m.sizes != (1, 1, 1) or len(m.taps) > 1 or 1 not in (m.row, m.col):
        return False  # within a stack, a matrix is packed once for all images
    tiling = line_tiling(machine, rows, m.cols)
    part, column_bytes = terms.chunk_taps * terms.depth, 4 * tiling.width * machine.lanes
    most_panels, near = 1, min(part, machine.l2 // 4 // column_bytes)
    if m.col == 1:
        most_panels, near = machine.l2 // 16 // (rows * column_bytes), NEAR
    block_panels = max(1, min(most_panels, tiling.panels // (ITEMS * machine.threads)))
    blocks = -(-tiling.panels // block_panels)
    if not _quicker(machine, rows, m, near, blocks, tiling.panels, tiling.cycles * m.rows):
        return False
    packed_at = block_panels * rows * column_bytes
    if bias is None:
        biases = Operand(b.const("bias_panels", channels=m.cols, lanes=machine.lanes, groups=1), 0)
    else:
        bias = b.arranged(bias, 0, exact=True)
        biases = bias.start
    record = Unpacked(
        x.start, Operand(m.memory.buffer, m.at), y.start, biases,
        4 * x.strides[0], 4 * m.row, 4 * m.col, 4 * y.strides[0], rows, m.rows, m.cols, part, near,
        tiling.width, tiling.tail, tiling.panels, block_panels, blocks, packed_at,
        max_rows(machine, tiling.width), UnpackedSweep(tiling.width, max_rows(machine, tiling.width)),
        UnpackedSweep(tiling.tail, max_rows(machine, tiling.tail)), epilogue(layer.activation),
    )  # fmt: skip
    reads = [x, m.memory, *([bias] if bias else [])]
    step(b, record, blocks, reads, [y], packed_at // 4 + near * column_bytes // 4)
    return True


def _quicker(
    machine: Machine, rows: int, m: Matrices, near: int, blocks: int, panels: int, cycles: float
) -> bool:
    """Whether writing panels and reading them again takes longer than what the step takes more.

    That is running sums from L2 and back at every ``near`` terms; the rows once for every panel from beyond
    L2, if they do not stay there; and threads without an item at the end. ``cycles``: those of one core.
    """
    t, matrix_bytes = machine.threads, 4 * m.rows * m.cols
    rate = machine.memory_bytes_per_cycle
    if 2 * matrix_bytes <= t * machine.l2:
        rate = machine.l2_bytes_per_cycle
    elif 2 * matrix_bytes <= machine.l3:
        rate = machine.l3_bytes_per_cycle
    packing = 3 * matrix_bytes / rate  # a line is read before it is written
    sums = 8 * rows * m.cols * (-(-m.rows // near)) / machine.l2_bytes_per_cycle
    again = 0.0
    if m.col != 1 and 4 * rows * m.rows > 0.4 * machine.l2:
        again = 4 * rows * m.rows * panels / machine.l3_bytes_per_cycle
    idle = cycles * (-(-blocks // t) * t / blocks - 1)
    return packing > sums + again + idle
