"""Reads operands from a step's record: two cells say which buffer and how many bytes into it."""

from numba.extending import register_jitable

from bslite.kernels.cpu.vector.simd import load_int


@register_jitable
def operand(step, bases, cell):
    """The address of the operand whose two cells start at byte ``cell`` of the record."""
    return load_int(bases + 8 * load_int(step + cell)) + load_int(step + cell + 8)
