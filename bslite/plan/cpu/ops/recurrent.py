"""Lowering of recurrent layers: a contraction for the inputs of all time steps, then a step for the sequence.

The loop's parameters are those that the search over the machine's model picks (`bslite.explore.cpu`).
"""

import math
from dataclasses import astuple

import numpy as np

from bslite.explore.cpu import choose, tall
from bslite.explore.problem import GATES
from bslite.explore.problem import Recurrent as Problem
from bslite.kernels.contracts.cpu.integer import ByteSweep, IntSweep
from bslite.kernels.contracts.cpu.recurrent import COUNTER, PackGates, Recurrent
from bslite.kernels.contracts.cpu.sweep import GemmSweep
from bslite.kernels.contracts.record import Operand
from bslite.kernels.contracts.recurrent import cell_of
from bslite.ops.training.recurrent_steps import Steps
from bslite.passes import Layer
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import View
from bslite.plan.cpu.contraction import contraction, merge_lines, rows_apart
from bslite.plan.cpu.ops.move import fill_step
from bslite.plan.cpu.reduction import Reduction, reduction
from bslite.plan.cpu.step import CpuBuilder, step
from bslite.plan.cpu.tiling import LineTiling, cut_line
from bslite.spec import Node

FAR = 4  # times L2: weights of a thread that are more come from too far for the hardware to fetch in time


@CPU.register("lstm", "lstm_rounded", "gru", "rnn", "lstm_steps", "gru_steps", "rnn_steps")
def lower_recurrent(b: CpuBuilder, layer: Layer) -> None:
    """Lower a recurrent layer: products with x for all steps, the initial state, the sequence."""
    node, machine = layer.node, b.machine
    op, attrs, lanes = node.op, node.attrs, b.machine.lanes
    rounds, loop = op == "lstm_rounded", isinstance(node.declaration, Steps)
    multiplied = rounds or loop  # the first input is the products with x
    op = op.split("_")[0]
    steps, batch, features = b.shapes[node.inputs[0]]
    gates = GATES[op]
    width = b.shapes[node.inputs[1]][1] if loop else b.spec.params[node.params["weight_hh"]].shape[1]
    hidden = width if loop else b.shapes[layer.name][2]
    blocks, padded = -(-hidden // lanes), -(-hidden // lanes) * lanes
    before = op == "gru" and not attrs["reset_after"]
    projected = "weight_hr" in node.params
    blocks2 = -(-width // lanes) if before or projected else 0

    problem = Problem(op, hidden, max(1, features), max(1, steps), max(1, batch))
    loops = choose(problem, machine)[0] if b.tuning.loops is None else b.tuning.loops
    first = (0, 1) if before else tuple(range(gates))
    tile = loops.tile if blocks % loops.tile == 0 and not blocks2 else 1
    units = max(tile, min(loops.units, blocks) // tile * tile)
    tile2 = max(t for t in (1, 2, 4) if blocks2 % t == 0)
    units2 = tile2 * max(1, blocks2 // tile2 // machine.threads) if blocks2 else 1
    shares = max(1, min(loops.threads, machine.threads, -(-blocks // units)))
    # For a single step, a product of all steps at once gains nothing.
    own_products = steps == 1 and not blocks2 and not multiplied

    made = b.write(layer.name, inner=-1)
    y, keeps = made, (made.shape[2] - hidden if attrs.get("keeps") else 0)
    if keeps:
        y = made.slice(2, keeps, keeps + hidden)
        fill_step(b, made.slice(0, steps, steps + 1).slice(2, 0, keeps), 0.0)
    nowhere = Operand(y.buffer, 0)
    inputs, inputs_block, inputs_gate = None, 4 * gates * lanes, 4 * lanes
    if multiplied:
        given_products = b.read(node.inputs[0], inner=-1, exact=True)
        inputs = b.reshaped(given_products, (steps * batch, features))
        inputs_block, inputs_gate = 4 * lanes, 4 * hidden
    elif not own_products:
        inputs = _input_products(b, layer, gates, blocks)
    x = b.read(node.inputs[0], inner=-1, exact=True) if own_products else None
    if projected and width < hidden:
        fill_step(b, y, 0.0)
    wide = -(-width // lanes) * lanes
    state, cell = b.dense((2, batch, wide)), b.dense((batch, padded))
    given = list(node.inputs[3 if loop else 1 :])
    for part, size in ((state.slice(0, 0, 1), width), (cell, hidden))[: 2 if op == "lstm" else 1]:
        if not attrs["initial_state"] or size < part.shape[-1]:
            fill_step(b, part, 0.0)
        if attrs["initial_state"]:
            rows = View(part.buffer, part.offset, (batch, size), part.strides[-2:])
            b.copy(b.values[given.pop(0)], rows)
    lengths = b.flat(b.values[given.pop()]) if attrs["lengths"] else None
    between, update = b.dense((batch, padded)), b.dense((batch, padded))
    rounded = b.dense((shares, batch, -(-wide // (2 * lanes)) * lanes)) if rounds else None
    counters = b.dense((steps * (2 if blocks2 else 1) * (1 + shares) * COUNTER // 4,))
    fill_step(b, counters, 0.0)
    room = batch * lanes * max(units * len(first), units2)
    work = b.dense((shares, 2 * room))

    pack = {"gates": gates, "lanes": lanes}
    few = rounds and b.spec.params[node.params["weight_hh"]].dtype == np.int8
    panels = "gate_byte_panels" if few else "gate_pair_panels" if rounds else "gate_panels"
    scale = nowhere
    packed: list[View] = []
    if loop:
        (weights, bias), packed = _packed(b, node, gates, first, tile)
    else:
        weights = Operand(b.const(panels, node.params["weight_hh"], pick=first, tile=tile, **pack), 0)
        has_bias = "bias_hh" in node.params
        biases = [node.params["bias_hh"]] if has_bias else [node.params["weight_hh"]]
        bias = Operand(b.const("gate_bias", *biases, pick=first, given=has_bias, **pack), 0)
    if rounds:
        scale = Operand(b.const("gate_bias", node.params["scale_hh"], pick=first, given=True, **pack), 0)
    weights2, bias2 = weights, bias
    if before and loop:
        (weights2, bias2), more = _packed(b, node, gates, (2,), tile2)
        packed += more
    elif before:
        weights2 = Operand(b.const("gate_panels", node.params["weight_hh"], pick=(2,), tile=tile2, **pack), 0)
        bias2 = Operand(b.const("gate_bias", *biases, pick=(2,), given=has_bias, **pack), 0)
    elif projected:
        key = node.params["weight_hr"]
        weights2 = Operand(b.const("gate_panels", key, pick=(0,), gates=1, lanes=lanes, tile=tile2), 0)
        bias2 = Operand(b.const("gate_bias", key, pick=(0,), gates=1, lanes=lanes, given=False), 0)
    sum1, sum2 = reduction(1, 1, width, 0, 0, True), reduction(1, 1, hidden, 0, 0, True)
    if rounds:
        sum1 = Reduction((0,), -(-width // 2), 1)  # cells, whose sum is exact
    vecs = len(first) * tile
    most, most2 = max(1, tall(machine, vecs)), max(1, tall(machine, tile2))
    cut, cut2 = cut_line(batch, most), cut_line(batch, most2)
    fetches = 4 * gates * hidden * width > FAR * machine.l2 * shares
    peephole, flag = nowhere, nowhere
    if lengths is not None:
        flag = lengths_flag(b, layer, steps)
    if "peephole" in node.params:
        key = node.params["peephole"]
        peephole = Operand(b.const("gate_bias", key, pick=(0, 1, 2), gates=3, lanes=lanes, given=True), 0)
    weights_x, bias_x, offsets_x, sum_x = nowhere, nowhere, nowhere, Reduction((), 0, 0)
    if x is not None:
        key, bias_key = node.params["weight_ih"], node.params.get("bias_ih")
        sum_x = reduction(1, 1, features, 0, 0, True)
        whole = {**pack, "pick": tuple(range(gates))}
        weights_x = Operand(b.const("gate_panels", key, tile=tile, **whole), 0)
        bias_x = Operand(b.const("gate_bias", bias_key or key, given=bias_key is not None, **whole), 0)
        offsets_x = table(b, sum_x.offsets)
    record = Recurrent(
        inputs=nowhere if inputs is None else inputs.start, state=state.start, cell=cell.start,
        between=between.start, update=update.start,
        rounded=nowhere if rounded is None else rounded.start, rounds=int(rounds), scale=scale,
        rounded_row=0 if rounded is None else 4 * rounded.shape[-1],
        weight_register=4 * lanes // (1 + few), y=y.start, work=work.start,
        weights=weights, bias=bias, offsets=table(b, sum1.offsets),
        weights2=weights2, bias2=bias2, offsets2=table(b, sum2.offsets),
        x=nowhere if x is None else x.start, weights_x=weights_x, bias_x=bias_x, offsets_x=offsets_x,
        peephole=peephole, lengths=lengths.start if lengths is not None else nowhere,
        counters=counters.start, flag=flag,
        inputs_row=0 if inputs is None else 4 * inputs.strides[0],
        inputs_block=inputs_block, inputs_gate=inputs_gate, y_time=4 * y.strides[0],
        y_row=4 * y.strides[1], keeps=4 * keeps,
        last_c=-4 * hidden if keeps else 4 * y.strides[0], state_row=4 * wide,
        state_bytes=4 * batch * wide, row_bytes=4 * padded,
        work_bytes=4 * work.shape[1], x_row=0 if x is None else 4 * x.strides[1],
        kind=cell_of(op, attrs.get("activation", ""), projected, not before), steps=steps, batch=batch,
        blocks=blocks, blocks2=blocks2, width=width, hidden=hidden, shares=shares,
        reverse=int(attrs["reverse"]), has_lengths=int(lengths is not None),
        has_peephole=int("peephole" in node.params), sweeps_back=int(loops.alternate), units=units,
        tile_units=tile, units2=units2, tile_units2=tile2,
        taps=len(sum1.offsets), chunk_taps=sum1.chunk_taps, depth=sum1.depth,
        taps2=len(sum2.offsets), chunk_taps2=sum2.chunk_taps, depth2=sum2.depth,
        taps_x=len(sum_x.offsets), chunk_taps_x=sum_x.chunk_taps, depth_x=sum_x.depth,
        cut=astuple(cut), cut_second=astuple(cut2), sweep=_sweep(vecs, most, rounds, few, fetches),
        sweep2=GemmSweep(tile2, most2, fetches) if blocks2 else None,
        minus_inf=-math.inf, plus_inf=math.inf,
    )  # fmt: skip
    reads = [state, cell, counters, *packed, *(view for view in (inputs, x, lengths) if view is not None)]
    writes = [made, state, cell, between, update, counters, work, *(v for v in (rounded,) if v is not None)]
    step(b, record, shares, reads, writes)


def _sweep(
    vecs: int, most: int, rounds: bool, few: bool, fetches: bool
) -> GemmSweep | IntSweep | ByteSweep:  # fmt: skip
    """The microkernel of the products with h; ``few``: of weights of int8; ``fetches``: beyond caches."""
    if few:
        return ByteSweep(vecs, most)
    return IntSweep(vecs, most, quads=False) if rounds else GemmSweep(vecs, most, fetches)


def _packed(
    b: CpuBuilder, node: Node, gates: int, pick: tuple[int, ...], tile: int
) -> tuple[tuple[Operand, Operand], list[View]]:
    """Append the steps that pack weight_hh and bias_hh, which are values, for the gates of ``pick``, which
    follow one another.
    """
    found = []
    for name in node.inputs[1:3]:
        view = b.values[name]
        row, depth = (view.strides[1], view.shape[1]) if len(view.shape) == 2 else (0, 1)
        hidden = view.shape[0] // gates
        blocks = -(-hidden // b.machine.lanes)
        panels = b.dense((blocks // tile, depth * tile * len(pick) * b.machine.lanes))
        record = PackGates(
            Operand(view.buffer, view.offset + pick[0] * hidden * view.strides[0]), panels.start,
            x_row=4 * row, x_col=4 * view.strides[0], gate_bytes=4 * hidden * view.strides[0],
            gates=len(pick), hidden=hidden, depth=depth, tile_units=tile,
        )  # fmt: skip
        step(b, record, blocks // tile, [view], [panels])
        found.append(panels)
    weight, bias = found
    return (weight.start, bias.start), found


def lengths_flag(b: CpuBuilder, layer: Layer, steps: int) -> Operand:
    """The flag that a length of a sequence raises if it is wrong."""
    return b.flag(layer.name, f"sequence length {{value}} is not between 1 and {steps}", beyond=True)


def table(b: CpuBuilder, offsets: tuple[int, ...]) -> Operand:
    """The byte offsets of a product's terms."""
    return Operand(b.const("offsets", values=[4 * o for o in offsets]), 0)


def _input_products(b: CpuBuilder, layer: Layer, gates: int, blocks: int) -> View:
    """``weight_ih x + bias_ih`` as ``[T*N, blocks * gates * LANES]``: a block's gates lie side by side."""
    node, lanes = layer.node, b.machine.lanes
    name = node.inputs[0]
    steps, batch, features = b.shapes[name]
    x = b.read(name, inner=-1, exact=True)
    rows = rows_apart(b, b.reshaped(x, (steps * batch, features)))
    channels = blocks * gates * lanes
    out = b.dense((steps * batch, channels))
    pick = tuple(range(gates))
    key = node.params.get("bias_ih")
    how = {"pick": pick, "gates": gates, "lanes": lanes, "given": key is not None}
    bias = b.const("gate_bias", key or node.params["weight_ih"], **how)

    def pack(tiling: LineTiling) -> tuple[View, int, int]:
        weights = b.const("gate_rows", node.params["weight_ih"], gates=gates, lanes=lanes, width=tiling.width)
        return View(weights, 0, (1,), (1,)), 0, 0

    geometry = {"x": (0, 0, rows.strides[0]), "y": (0, 0, channels), "r": (0, 0, 0)}
    lines, geometry = merge_lines(b, 1, 1, steps * batch, channels, geometry)
    contraction(
        b, layer, rows.start, out, None, lines, geometry,
        reduction(1, 1, features, 0, 0, True), channels=channels, halo_reads=rows,
        pack=pack, bias=bias,
    )  # fmt: skip
    return out
