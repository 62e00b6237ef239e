"""Lowering of `grouped_linear`: items of its step are groups, of as many rows as they have at run time."""

import math

from bslite.kernels.contracts.cpu.grouped import Grouped
from bslite.kernels.contracts.record import Operand
from bslite.passes import Layer
from bslite.plan.core.lowering import CPU
from bslite.plan.cpu.reduction import reduction_of_rows
from bslite.plan.cpu.step import CpuBuilder, step
from bslite.plan.cpu.tiling import line_tiling, max_rows, sweep

BLOCKS = 16  # items for each thread: threads share out a few groups with rows


@CPU.register("grouped_linear")
def lower_grouped_linear(b: CpuBuilder, layer: Layer) -> None:
    """Lower ``x @ weight[e].T`` for the rows of each group e."""
    node, machine = layer.node, b.machine
    groups, k, c = b.spec.param_shapes(node)["weight"]
    x, ends = b.read(node.inputs[0], inner=-1, exact=True), b.values[node.inputs[1]]
    y, home = b.writable(layer.name, 1)
    rows, terms = x.shape[0], reduction_of_rows(c, k)
    packed = b.tuning.packed.get(node.params["weight"], 0)
    tiling = line_tiling(machine, max(1, rows // groups), k, packed=packed)
    width, panels = tiling.width, tiling.panels
    wanted = BLOCKS * machine.threads // min(groups, rows) or 1
    blocks = -(-panels // -(-panels // min(panels, wanted)))
    narrow = b.tuning.in_memory(node.params["weight"], groups * k * c)
    how = {"lanes": machine.lanes, "width": width, "narrow": int(narrow)}
    record = Grouped(
        x.start, ends.start, Operand(b.const("group_panels", node.params["weight"], **how), 0),
        Operand(b.const("bias_panels", channels=k, lanes=machine.lanes, groups=1), 0),
        Operand(b.const("offsets", values=[4 * o for o in terms.offsets]), 0), y.start,
        x_row=4 * x.strides[0], y_row=4 * y.strides[0], end_step=4 * ends.strides[0], rows=rows,
        groups=groups,
        group_bytes=narrow.bytes * terms.size * machine.lanes * tiling.registers,
        register_bytes=narrow.bytes * machine.lanes, columns=k, taps=len(terms.offsets),
        chunk_taps=terms.chunk_taps, depth=terms.depth, width=width, tail=tiling.tail, panels=panels,
        block_panels=-(-panels // blocks), blocks=blocks, most=max_rows(machine, width),
        sweep=sweep(machine, width, narrow=narrow), tail_sweep=sweep(machine, tiling.tail, narrow=narrow),
        lo=-math.inf, hi=math.inf,
    )  # fmt: skip
    step(b, record, (groups + 1) * blocks, [x, ends], [y])
    if y is not home:
        b.copy(y, home)
