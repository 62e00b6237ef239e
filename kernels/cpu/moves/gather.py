"""Rows of a table by index."""

from bslite.kernels.contracts.cpu.places import Gather
from bslite.kernels.cpu.moves.move import copy_run
from bslite.kernels.cpu.runtime.compile import offsets, step_kernel
from bslite.kernels.cpu.runtime.flag import raise_flag
from bslite.kernels.cpu.vector.operand import operand
from bslite.kernels.cpu.vector.simd import load_cell, load_int

F = offsets(Gather)


@step_kernel(Gather)
def gather(step, bases, item, scratch):
    """``y[o, i] = x[o, indices[i]]`` for one ``o`` and a part of the ``i``."""
    size, count, parts = load_int(step + F.size), load_int(step + F.count), load_int(step + F.parts)
    inner = load_int(step + F.inner)
    outer, part = item // parts, item % parts
    x = operand(step, bases, F.x) + outer * size * inner * 4
    y = operand(step, bases, F.y) + outer * count * inner * 4
    indices, flag = operand(step, bases, F.indices), operand(step, bases, F.flag)
    for i in range(count * part // parts, count * (part + 1) // parts):
        index = load_cell(indices + 4 * i)
        at = index + size if index < 0 else index
        if at < 0 or at >= size:
            raise_flag(flag, index)
            at = 0
        copy_run(x + at * inner * 4, y + i * inner * 4, inner, 4, 4, 1)
