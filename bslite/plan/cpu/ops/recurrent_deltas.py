"""Lowering of recurrent layers backwards: a step packs the weights, one holds the loop over time."""

import math
from dataclasses import astuple

from bslite.explore.cpu import columns
from bslite.kernels.contracts.cpu.recurrent import COUNTER, RecurrentDeltas
from bslite.kernels.contracts.cpu.sweep import GemmSweep
from bslite.kernels.contracts.record import Operand
from bslite.kernels.contracts.recurrent import cell_of
from bslite.ops.training.recurrent_steps import Deltas
from bslite.passes import Layer
from bslite.plan.core.builder import PAGE
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import View
from bslite.plan.cpu.ops.move import fill_step
from bslite.plan.cpu.ops.recurrent import lengths_flag, table
from bslite.plan.cpu.packing import Matrices, pack
from bslite.plan.cpu.reduction import reduction
from bslite.plan.cpu.step import CpuBuilder, step
from bslite.plan.cpu.tiling import cut_line


@CPU.register("lstm_deltas", "gru_deltas", "rnn_deltas")
def lower_deltas(b: CpuBuilder, layer: Layer) -> None:
    """Lower the loop backwards of a recurrent layer."""
    node, lanes, threads = layer.node, b.machine.lanes, b.machine.threads
    op, attrs = node.declaration, node.attrs
    assert isinstance(op, Deltas)
    kept, grad = (b.read(node.inputs[i], inner=-1, exact=True) for i in (0, 2))
    steps, batch, hidden = kept.shape[0] - 1, kept.shape[1], grad.shape[2]
    blocks = -(-hidden // lanes)
    before = not attrs.get("reset_after", True)
    given, starts = list(node.inputs[3:]), bool(attrs["initial_state"])
    lengths = b.flat(b.values[given.pop()]) if attrs["lengths"] else None

    made = b.write(layer.name, inner=-1)
    nowhere = Operand(made.buffer, 0)
    if starts and made.shape[2] > op.states * hidden:
        fill_step(b, made.slice(0, steps, steps + 1).slice(2, op.states * hidden, made.shape[2]), 0.0)
    start = b.read(given[-1], inner=-1, exact=True) if starts and op.of.kept(attrs) > 1 else None

    tile, most = columns(b.machine, batch, blocks)
    units = tile * -(-(blocks // tile) // threads)
    groups = -(-blocks // units)
    shares = max(1, min(threads, groups))
    depth = (op.gates - before) * hidden
    weight = b.values[node.inputs[1]]
    sum1, sum2 = reduction(1, 1, depth, 0, 0, True), reduction(1, 1, hidden, 0, 0, True)
    weights = _packed(b, weight, 0, depth, tile)
    weights2 = _packed(b, weight, depth, hidden, tile) if before else weights
    row = depth + (lanes if 4 * depth % PAGE == 0 else 0)
    state, carry = b.dense((2, batch, row)), b.dense((batch, blocks * lanes))
    between = b.dense((batch, blocks * lanes)) if before else carry
    stages = steps * (1 + before) + starts
    counters = b.dense((stages * (1 + shares) * COUNTER // 4,))
    fill_step(b, counters, 0.0)
    work = b.dense((shares, batch * lanes * units))
    bias = b.const("bias_panels", channels=tile * lanes, lanes=lanes, groups=1)
    record = RecurrentDeltas(
        kept=kept.start, grad=grad.start, made=made.start, state=state.start, carry=carry.start,
        between=between.start, start=nowhere if start is None else start.start, work=work.start,
        weights=weights.start, bias=Operand(bias, 0), offsets=table(b, sum1.offsets),
        weights2=weights2.start, offsets2=table(b, sum2.offsets),
        lengths=nowhere if lengths is None else lengths.start, counters=counters.start,
        flag=nowhere if lengths is None else lengths_flag(b, layer, steps),
        kept_time=4 * kept.strides[0], kept_row=4 * kept.strides[1], keeps=4 * (kept.shape[2] - hidden),
        grad_time=4 * grad.strides[0], grad_row=4 * grad.strides[1], made_time=4 * made.strides[0],
        made_row=4 * made.strides[1], state_row=4 * row, state_bytes=4 * batch * row,
        row_bytes=4 * blocks * lanes, start_row=0 if start is None else 4 * start.strides[0],
        work_bytes=4 * work.shape[1],
        kind=cell_of(op.name.split("_")[0], attrs.get("activation", ""), False, not before), steps=steps,
        passes=1 + before, batch=batch, blocks=blocks, hidden=hidden, sums=made.shape[2] // hidden,
        shares=shares, reverse=int(attrs["reverse"]), has_lengths=int(lengths is not None),
        has_start=int(starts), units=units, tile_units=tile, taps=len(sum1.offsets),
        chunk_taps=sum1.chunk_taps, depth=sum1.depth, taps2=len(sum2.offsets),
        chunk_taps2=sum2.chunk_taps, depth2=sum2.depth, cut=astuple(cut_line(batch, most)),
        sweep=GemmSweep(tile, most, fetches=False), minus_inf=-math.inf, plus_inf=math.inf,
    )  # fmt: skip
    reads = [kept, grad, weights, weights2, counters, *(v for v in (start, lengths) if v is not None)]
    step(b, record, shares, reads, [made, state, carry, between, counters, work])


def _packed(b: CpuBuilder, weight: View, first: int, depth: int, tile: int) -> View:
    """Append the step that packs rows of weight_hh as the panels of a product with deltas."""
    hidden, (row, col) = weight.shape[1], weight.strides
    at = weight.offset + first * row
    panels = -(-hidden // b.machine.lanes) // tile
    return pack(b, Matrices(weight, at, depth, hidden, row, col), tile, tile, panels)
