"""The check of sequence lengths."""

from bslite.kernels.contracts.cpu.places import SequenceLengths
from bslite.kernels.cpu.runtime.compile import offsets, step_kernel
from bslite.kernels.cpu.runtime.flag import raise_flag
from bslite.kernels.cpu.vector.operand import operand
from bslite.kernels.cpu.vector.simd import load_cell, load_int, store_cell

F = offsets(SequenceLengths)


@step_kernel(SequenceLengths)
def sequence_lengths(step, bases, item, scratch):
    """``y = x``, dense. Flags lengths outside 1 to ``most``, those that follow a shorter one (where
    ``in_order``), and a longest length below ``steps``. A length out of range becomes 1.
    """
    x, y = operand(step, bases, F.x), operand(step, bases, F.y)
    most, in_order = load_int(step + F.most), load_int(step + F.in_order)
    before, longest = most, 0
    for i in range(load_int(step + F.count)):
        length = load_cell(x + 4 * i)
        if length < 1 or length > most:
            raise_flag(operand(step, bases, F.range_flag), length)
            length = 1
        elif in_order and length > before:
            raise_flag(operand(step, bases, F.order_flag), length)
        before = length
        longest = max(longest, length)
        store_cell(y + 4 * i, length)
    if longest < load_int(step + F.steps):
        raise_flag(operand(step, bases, F.whole_flag), longest)
