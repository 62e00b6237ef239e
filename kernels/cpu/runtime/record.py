"""A step's record as a kernel reads it: with ``s = F(step, bases)`` for ``F = reader(Copy)``, ``s.n0`` is a
number of the record, ``s.source`` the address of an operand, and ``s.n0_cell`` the address of a cell itself.

Two cells say where an operand is: which of the ``bases``, and how many bytes into that buffer. Each use is a
load, so what a loop uses after stores is read into a variable before it.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.typing.templates import AttributeTemplate, infer_getattr, signature
from numba.extending import intrinsic, lower_getattr_generic, register_jitable, register_model

from bslite.kernels.contracts.record import StepRecord, is_operand, parameters
from bslite.kernels.cpu.vector.simd import F32, I64, LANES, pointer

HEADER = ("kernel", "items", "after")  # cells every record starts with


class RecordType(types.Type):
    """Numba's type of a record of one kind of step, at address ``step`` with the table ``bases``."""

    def __init__(self, contract: type[StepRecord]) -> None:
        super().__init__(f"record({contract.__name__})")
        self.cells, at = {}, 8 * len(HEADER)
        for name, hint in parameters(contract):
            self.cells[name] = at, hint
            at += 16 if is_operand(hint) else 8


@register_model(RecordType)
class _Model(models.StructModel):
    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, [("step", types.int64), ("bases", types.int64)])


@infer_getattr
class _Attributes(AttributeTemplate):
    key = RecordType

    def generic_resolve(self, record, name):
        if name.removesuffix("_cell") in record.cells:
            return types.float32 if record.cells.get(name, (0, None))[1] is float else types.int64
        return None


@lower_getattr_generic(RecordType)
def _read(context, builder, record, value, name):
    given = cgutils.create_struct_proxy(record)(context, builder, value=value)

    def load(address: Any, kind: Any = I64) -> Any:
        return builder.load(pointer(builder, address, kind), align=4 if kind is F32 else 8)

    at, hint = record.cells[name.removesuffix("_cell")]
    cell = builder.add(given.step, ir.Constant(I64, at))
    if name not in record.cells:
        return cell
    if is_operand(hint):
        base = builder.add(given.bases, builder.mul(load(cell), ir.Constant(I64, 8)))
        return builder.add(load(base), load(builder.add(cell, ir.Constant(I64, 8))))
    return load(cell, F32 if hint is float else I64)


def reader(contract: type[StepRecord]) -> Any:
    """Intrinsic ``F(step, bases)``: a record of this kind, and the table of base addresses that it uses."""
    record = RecordType(contract)

    def codegen(context, builder, sig, args):
        made = cgutils.create_struct_proxy(record)(context, builder)
        made.step, made.bases = args
        return made._getvalue()

    @intrinsic
    def read(typingctx, step, bases):
        return signature(record, types.int64, types.int64), codegen

    return read


@register_jitable
def band_of(s, item):
    """The part of an item where images are cut by `Shares`: image, first and past-the-last line, the first
    byte of the channels, and their number.
    """
    block, rest = item % s.blocks, item // s.blocks
    first, lanes = rest % s.bands * s.band_lines, s.block_registers * LANES
    last, channels = min(s.lines, first + s.band_lines), min(s.channels - block * lanes, lanes)
    return rest // s.bands, first, last, 4 * block * lanes, channels


@register_jitable
def planes_of(s, item, lines):
    """The part of an item where planes of ``lines`` are cut by `PlaneShares`: the first and the past-the-last
    plane, and line.
    """
    plane, line = item // s.bands * s.item_planes, item % s.bands * s.band_lines
    return plane, min(s.planes, plane + s.item_planes), line, min(lines, line + s.band_lines)
