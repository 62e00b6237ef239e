"""A strided copy over any number of axes, for copies that the "copy" kernel has too few loops for."""

from bslite.kernels.contracts.cpu.moves import CopyAxes
from bslite.kernels.cpu.moves.move import copy_run
from bslite.kernels.cpu.runtime.compile import offsets, step_kernel
from bslite.kernels.cpu.vector.operand import operand
from bslite.kernels.cpu.vector.simd import load_int

F = offsets(CopyAxes)
ENTRY = 24  # bytes of a table entry: size, byte stride in x, in y


@step_kernel(CopyAxes)
def copy_axes(step, bases, item, scratch):
    """Copies planes of the two innermost axes; the ``axes`` around them are in the table, innermost first."""
    table, axes = operand(step, bases, F.table), load_int(step + F.axes)
    n0, n1, vector = load_int(step + F.n0), load_int(step + F.n1), load_int(step + F.vector)
    x0, x1, y0, y1 = (
        load_int(step + F.x0), load_int(step + F.x1), load_int(step + F.y0), load_int(step + F.y1)
    )  # fmt: skip
    first = item * load_int(step + F.item_planes)
    for plane in range(first, min(load_int(step + F.planes), first + load_int(step + F.item_planes))):
        x, y = operand(step, bases, F.source), operand(step, bases, F.target)
        rest = plane
        for axis in range(axes):
            size = load_int(table + axis * ENTRY)
            x += rest % size * load_int(table + axis * ENTRY + 8)
            y += rest % size * load_int(table + axis * ENTRY + 16)
            rest //= size
        for i in range(n0):
            copy_run(x + i * x0, y + i * y0, n1, x1, y1, vector)
