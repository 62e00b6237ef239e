"""The check of sequence lengths."""

from bslite.kernels.contracts.cpu.places import SequenceLengths
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.flag import raise_flag
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.memory import load_cell, store_cell

F = reader(SequenceLengths)


@step_kernel(SequenceLengths)
def sequence_lengths(step, bases, item, scratch):
    """``y = x``, dense. Flags lengths outside 1 to ``most``, those that follow a shorter one (where
    ``in_order``), and a longest length below ``steps``. A length out of range becomes 1.
    """
    s = F(step, bases)
    x, y = s.x, s.y
    most, in_order = s.most, s.in_order
    before, longest = most, 0
    for i in range(s.count):
        length = load_cell(x + 4 * i)
        if length < 1 or length > most:
            raise_flag(s.range_flag, length)
            length = 1
        elif in_order and length > before:
            raise_flag(s.order_flag, length)
        before = length
        longest = max(longest, length)
        store_cell(y + 4 * i, length)
    if longest < s.steps:
        raise_flag(s.whole_flag, longest)
