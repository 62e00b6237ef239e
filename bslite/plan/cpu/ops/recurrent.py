"""Recurrent layers: one contraction for the inputs of all time steps, then a step that walks the sequence.

The loop's parameters are those that the search over the machine's model picks (`bslite.explore.cpu`).
"""

from __future__ import annotations

import math
from typing import Any

from bslite.explore.cpu import choose, tall
from bslite.explore.problem import GATES, Recurrent
from bslite.passes import Layer
from bslite.plan.core.builder import PAGE
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import NO_HALO, View, contiguous, size_of
from bslite.plan.cpu.contraction import contraction, merge_lines
from bslite.plan.cpu.ops.move import fill_step
from bslite.plan.cpu.reduction import reduction
from bslite.plan.cpu.step import CpuBuilder, untyped
from bslite.plan.cpu.tiling import LineTiling, cut_line

COUNTER_CELLS = 16  # of a cache line
WAYS = 8  # of L1: so many rows a page apart can be in use together
NOTHING, OWN = 1, 2  # `kernels.cpu.gemm.tile`: who fetches weights from beyond L1


def _dense(b: CpuBuilder, *shape: int) -> View:
    """A new row-major buffer."""
    return View(b.buffer(size_of(shape)).name, 0, shape, contiguous(shape))


@CPU.register("lstm", "gru", "rnn")
def lower_recurrent(b: CpuBuilder, layer: Layer) -> None:
    """Products with x for all steps; the initial state; the sequence. Or, in flight with the layer below:
    that one's step, and this one's behind it.
    """
    node, machine = layer.node, b.machine
    op, attrs, lanes = node.op, node.attrs, b.machine.lanes
    steps, batch, features = b.shapes[node.inputs[0]]
    hidden = b.shapes[layer.name][2]
    gates = GATES[op]
    width = b.spec.params[node.params["weight_hh"]].shape[1]
    blocks, padded = -(-hidden // lanes), -(-hidden // lanes) * lanes
    before = op == "gru" and not attrs["reset_after"]
    projected = "weight_hr" in node.params
    blocks2 = -(-width // lanes) if before or projected else 0

    problem = Recurrent(op, hidden, max(1, features), max(1, steps), max(1, batch))
    loops = choose(problem, machine)[0] if b.tuning.loops is None else b.tuning.loops
    below = None if blocks2 or attrs["reverse"] else _below(b, layer, problem)
    flying = b.take_back(below) if below else []
    if flying:
        loops = loops._replace(
            threads=flying[-1].record.numbers()["shares"],
            alternate=bool(flying[-1].record.numbers()["sweeps_back"]),
        )
    first = (0, 1) if before else tuple(range(gates))
    tile = loops.tile if blocks % loops.tile == 0 and not blocks2 else 1
    units = max(tile, min(loops.units, blocks) // tile * tile)
    tile2 = max(t for t in (1, 2, 4) if blocks2 % t == 0)
    units2 = tile2 * max(1, blocks2 // tile2 // machine.threads) if blocks2 else 1
    shares = max(1, min(loops.threads, machine.threads, -(-blocks // units)))
    flight = len(flying) + 1
    # What the layer below makes step by step is multiplied step by step; so is a single step, where a product
    # of all steps at once would gain nothing.
    own_products = bool(flying) or (steps == 1 and not blocks2)

    y = b.write(layer.name, inner=-1)
    nowhere = (y.buffer, 0)
    inputs = None if own_products else _input_products(b, layer, gates, blocks)
    x = b.read(node.inputs[0], inner=-1, exact=True) if own_products else None
    if projected and width < hidden:
        fill_step(b, y, 0.0)
    wide = -(-width // lanes) * lanes
    state, cell = _dense(b, 2, batch, wide), _dense(b, batch, padded)
    given = list(node.inputs[1:])
    for part, size in ((state.slice(0, 0, 1), width), (cell, hidden))[: 2 if op == "lstm" else 1]:
        if not attrs["initial_state"] or size < part.shape[-1]:
            fill_step(b, part, 0.0)
        if attrs["initial_state"]:
            rows = View(part.buffer, part.offset, (batch, size), part.strides[-2:])
            b.copy(b.values[given.pop(0)], rows)
    lengths = b.flat(b.values[given.pop()]) if attrs["lengths"] else None
    between, update = _dense(b, batch, padded), _dense(b, batch, padded)
    stages = (steps + flight - 1) * (2 if blocks2 else 1)
    counters = _dense(b, stages * (1 + shares * flight) * COUNTER_CELLS)
    fill_step(b, counters, 0.0)
    room = batch * lanes * max(units * len(first), units2)
    work = _dense(b, shares, 2 * room)

    kind = {"lstm": 5 if projected else 0, "gru": 2 if before else 1}.get(op, 3)
    if op == "rnn" and attrs["activation"] == "relu":
        kind = 4
    pack = {"gates": gates, "lanes": lanes}
    weights = b.const("gate_panels", node.params["weight_hh"], pick=first, tile=tile, **pack)
    has_bias = "bias_hh" in node.params
    biases = [node.params["bias_hh"]] if has_bias else [node.params["weight_hh"]]
    bias = b.const("gate_bias", *biases, pick=first, given=has_bias, **pack)
    weights2, bias2 = weights, bias
    if before:
        weights2 = b.const("gate_panels", node.params["weight_hh"], pick=(2,), tile=tile2, **pack)
        bias2 = b.const("gate_bias", *biases, pick=(2,), given=has_bias, **pack)
    elif projected:
        key = node.params["weight_hr"]
        weights2 = b.const("gate_panels", key, pick=(0,), gates=1, lanes=lanes, tile=tile2)
        bias2 = b.const("gate_bias", key, pick=(0,), gates=1, lanes=lanes, given=False)
    sum1, sum2 = reduction(1, 1, width, 0, 0, True), reduction(1, 1, hidden, 0, 0, True)
    vecs = len(first) * tile
    most, most2 = max(1, tall(machine, vecs)), max(1, tall(machine, tile2))
    cut, cut2 = cut_line(batch, most), cut_line(batch, most2)
    fetch = OWN if loops.fetch else NOTHING
    args: dict[str, Any] = {
        "inputs_row": 0 if inputs is None else 4 * inputs.strides[0],
        "y_time": 4 * y.strides[0], "y_row": 4 * y.strides[1],
        "state_row": 4 * wide, "state_bytes": 4 * batch * wide, "row_bytes": 4 * padded,
        "work_bytes": 4 * work.shape[1], "kind": kind, "steps": steps, "batch": batch,
        "blocks": blocks, "blocks2": blocks2, "width": width, "hidden": hidden, "shares": shares,
        "reverse": int(attrs["reverse"]), "has_lengths": int(lengths is not None),
        "has_peephole": int("peephole" in node.params), "sweeps_back": int(loops.alternate),
        "units": units, "tile": tile, "units2": units2, "tile2": tile2, "flight": flight,
        "ahead": loops.fetch,
        "taps": len(sum1.offsets), "chunk_taps": sum1.chunk_taps, "depth": sum1.depth,
        "taps2": len(sum2.offsets), "chunk_taps2": sum2.chunk_taps, "depth2": sum2.depth,
        **cut._asdict(), **{f"{name}_2": value for name, value in cut2._asdict().items()},
        "sweep": ["gemm_sweep", vecs, most, loops.unroll, fetch],
        "sweep2": ["gemm_sweep", tile2, most2, loops.unroll, fetch] if blocks2 else 0,
        "minus_inf": -math.inf, "plus_inf": math.inf,
    }  # fmt: skip
    operands: dict[str, tuple[str, int]] = {
        "inputs": nowhere if inputs is None else (inputs.buffer, 0), "state": (state.buffer, 0),
        "cell": (cell.buffer, 0), "between": (between.buffer, 0),
        "update": (update.buffer, 0), "y": (y.buffer, y.offset), "work": (work.buffer, 0),
        "weights": (weights, 0), "bias": (bias, 0), "weights2": (weights2, 0), "bias2": (bias2, 0),
        "peephole": nowhere, "offsets": (_table(b, sum1.offsets), 0),
        "offsets2": (_table(b, sum2.offsets), 0),
        "lengths": (lengths.buffer, lengths.offset) if lengths is not None else nowhere,
        "counters": (counters.buffer, 0), "flag": nowhere,
    }  # fmt: skip
    more_args, more_operands = _products_by_step(b, layer, gates, tile, x, nowhere)
    args, operands = args | more_args, operands | more_operands
    if lengths is not None:
        operands["flag"] = b.flag(layer.name, f"sequence length {{value}} is not between 1 and {steps}")
    if "peephole" in node.params:
        peephole = b.const(
            "gate_bias", node.params["peephole"], pick=(0, 1, 2), gates=3, lanes=lanes, given=True
        )
        operands["peephole"] = (peephole, 0)
    reads = [state, cell, counters]
    reads += [view for view in (inputs, x, lengths) if view is not None]
    for step in flying:
        step.items = 0  # the last one's record leads to these
        b.steps.append(step)
    untyped(b, "recurrent", shares, args, operands, reads, [y, state, cell, between, update, counters, work])
    step = b.steps[-1]
    step.layers = tuple(dict.fromkeys(name for s in (*flying, step) for name in s.layers))
    for lower in flying:
        step.reads += lower.reads
        step.writes += lower.writes


def _below(b: CpuBuilder, layer: Layer, problem: Recurrent) -> int:
    """How many steps, the last ones, are of the layers below that this one should be in flight with."""
    last = b.steps[-1] if b.steps else None
    x, lengths = b.values[layer.node.inputs[0]], layer.node.attrs["lengths"]
    if b.layerwise or last is None or last.kernel != "recurrent" or lengths:
        return 0
    flight = last.record.numbers()["flight"]
    same = (last.operands["y"] == (x.buffer, x.offset) and last.record.numbers()["steps"] == problem.steps
            and last.record.numbers()["batch"] == problem.batch)  # fmt: skip
    alike = (4 * x.strides[0], 4 * x.strides[1], x.strides[2]) == (
        last.record.numbers()["y_time"],
        last.record.numbers()["y_row"],
        1,
    )
    if (
        not same
        or not alike
        or last.record.numbers()["blocks2"]
        or last.record.numbers()["reverse"]
        or last.record.numbers()["has_lengths"]
    ):
        return 0
    if b.tuning.loops is not None:
        return flight if b.tuning.loops.flight > flight else 0
    together = Recurrent(
        problem.kind, problem.hidden, problem.inputs, problem.steps, problem.batch, flight + 1
    )
    return flight if choose(together, b.machine)[0].flight > flight else 0


def _products_by_step(
    b: CpuBuilder, layer: Layer, gates: int, tile: int, x: View | None, nowhere: tuple[str, int]
) -> tuple[dict[str, Any], dict[str, tuple[str, int]]]:
    """Cells and operands of the products with ``x``, taken in each time step; of none, without it."""
    args: dict[str, Any] = {"x_time": 0, "x_row": 0, "taps_x": 0, "chunk_taps_x": 0, "depth_x": 0}
    operands = dict.fromkeys(("x", "weights_x", "bias_x", "offsets_x"), nowhere)
    if x is not None:
        node = layer.node
        sums = reduction(1, 1, x.shape[2], 0, 0, True)
        args |= {
            "x_time": 4 * x.strides[0], "x_row": 4 * x.strides[1],
            "taps_x": len(sums.offsets), "chunk_taps_x": sums.chunk_taps, "depth_x": sums.depth,
        }  # fmt: skip
        pack: dict[str, Any] = {"gates": gates, "lanes": b.machine.lanes, "pick": tuple(range(gates))}
        key, bias = node.params["weight_ih"], node.params.get("bias_ih")
        operands |= {
            "x": (x.buffer, x.offset), "offsets_x": (_table(b, sums.offsets), 0),
            "weights_x": (b.const("gate_panels", key, tile=tile, **pack), 0),
            "bias_x": (b.const("gate_bias", bias or key, given=bias is not None, **pack), 0),
        }  # fmt: skip
    return args, operands


def _table(b: CpuBuilder, offsets: tuple[int, ...]) -> str:
    return b.const("offsets", values=[4 * o for o in offsets])


def _input_products(b: CpuBuilder, layer: Layer, gates: int, blocks: int) -> View:
    """``weight_ih x + bias_ih`` as ``[T*N, blocks * gates * LANES]``: the gates of a block side by side."""
    node, lanes = layer.node, b.machine.lanes
    name = node.inputs[0]
    steps, batch, features = b.shapes[name]
    x = b.read(name, inner=-1, exact=True)
    rows = x.reshape((steps * batch, features))
    if rows is None:
        rows = b.flat(x).reshape((steps * batch, features))
        assert rows is not None
    if steps * batch > WAYS and 4 * rows.strides[0] % PAGE == 0:  # else they meet in one set of L1
        source, rows = rows, b.fresh(rows.shape, 1, NO_HALO)
        b.copy(source, rows)
    channels = blocks * gates * lanes
    out = _dense(b, steps * batch, channels)
    pick = tuple(range(gates))
    key = node.params.get("bias_ih")
    bias = b.const(
        "gate_bias",
        key or node.params["weight_ih"],
        pick=pick,
        gates=gates,
        lanes=lanes,
        given=key is not None,
    )

    def pack(tiling: LineTiling) -> tuple[View, int, int]:
        weights = b.const("gate_rows", node.params["weight_ih"], gates=gates, lanes=lanes, width=tiling.width)
        return View(weights, 0, (1,), (1,)), 0, 0

    geometry = {"x": (0, 0, rows.strides[0]), "y": (0, 0, channels), "r": (0, 0, 0)}
    n, p, q, geometry = merge_lines(b, 1, 1, steps * batch, channels, geometry)
    contraction(
        b, layer, (rows.buffer, rows.offset), out, None, (n, p, q), geometry,
        reduction(1, 1, features, 0, 0, True), channels=channels, groups=1, group_depth=0, halo_reads=rows,
        pack=pack, bias=bias,
    )  # fmt: skip
    return out
