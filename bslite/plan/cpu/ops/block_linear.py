"""Lowering of `block_linear`: items of its step are panels of columns, for bands of rows."""

import math

from bslite.kernels.contracts.cpu.blocks import CELL, Blocks, BlockSweep
from bslite.kernels.contracts.record import Operand
from bslite.ops.contraction import BlockLinear
from bslite.passes import Layer
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import NO_HALO, size_of
from bslite.plan.cpu.epilogue import epilogue
from bslite.plan.cpu.step import CpuBuilder, step
from bslite.plan.cpu.tiling import max_rows, sweep

CHUNK = 128  # terms of a sum at most, which are widened at a time: they stay in L1
FEW = 4  # rows that widen numbers as they read them, each tile for itself
LEAST = 128  # rows of a band, if there are as many: each band has all weights widened for itself


@CPU.register("block_linear")
def lower_block_linear(b: CpuBuilder, layer: Layer) -> None:
    """Lower ``x @ weight.T + bias`` with weights of a few bits. Neither rows nor threads decide the sums."""
    node, machine = layer.node, b.machine
    shapes = b.spec.param_shapes(node)
    bits, (k, _, _) = node.attrs["bits"], shapes["weight"]
    c = b.shapes[node.inputs[0]][-1]
    block = piece(BlockLinear.block(shapes["weight"], node.attrs), bits)
    x = b.read(node.inputs[0], inner=-1, exact=True)
    rows = b.reshaped(x, (size_of(x.shape[:-1]), c))
    y = b.write(layer.name, inner=-1)
    out = y.reshape((rows.shape[0], k))
    if out is None:  # a slice of a concat whose rows are not one run
        out = b.fresh((rows.shape[0], k), 1, NO_HALO)
    m, lanes, zeros = rows.shape[0], machine.lanes, "zero" in node.params
    width = min(-(-k // lanes), 4 if machine.registers >= 32 else 2)
    panels = -(-k // (width * lanes))
    tail = -(-k // lanes) - (panels - 1) * width
    chunk = block * (CHUNK // block)
    band = max(LEAST, machine.l2 // (8 * c))
    bands = -(-m // band)
    keys = [node.params[role] for role in ("weight", "scale", *["zero"] * zeros)]
    how = {"lanes": lanes, "width": width, "bits": bits, "block": block, "terms": c}
    bias = [node.params["bias"]] if "bias" in node.params else []
    most = max_rows(machine, width)
    few = min(FEW, (machine.registers - (3 + zeros) * width - 2) // width)
    if c % (CELL // bits):
        few = 0
    record = Blocks(
        rows.start, Operand(b.const("block_panels", *keys, **how), 0),
        Operand(b.const("bias_panels", *bias, channels=k, lanes=lanes, groups=1), 0),
        Operand(b.const("offsets", values=[0]), 0), out.start, x_row=4 * rows.strides[0],
        y_row=4 * out.strides[0], rows=m, band_rows=-(-m // bands), bands=bands, columns=k, panels=panels,
        width=width, tail=tail,
        panel_bytes=-(-c // block) * (1 + zeros + block * bits // CELL) * width * lanes * 4,
        terms=c, block=block, chunk=chunk, bits=bits, zeros=int(zeros), few=few, most=most,
        sweep=sweep(machine, width), tail_sweep=sweep(machine, tail),
        of_few=BlockSweep(width, FEW, bits, zeros), tail_of_few=BlockSweep(tail, FEW, bits, zeros),
        minus_inf=-math.inf, plus_inf=math.inf, end=epilogue(layer.activation),
    )  # fmt: skip
    step(b, record, bands * panels, [rows], [out], chunk * width * lanes)
    if out.buffer != y.buffer:
        b.copy(b.reshaped(out, y.shape), y)


def piece(block: int, bits: int) -> int:
    """The terms that the kernel takes for a block: all of one that a chunk holds, and of a larger one the
    largest equal part, each with the block's scale. A block is of whole cells, or `simplify` widens it.
    """
    held = CELL // bits
    return max(n for n in range(held, min(block, CHUNK) + 1, held) if block % n == 0)
