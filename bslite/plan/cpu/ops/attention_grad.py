"""Lowering of attention's gradient to one step: all weights of a few queries at a time, in scratch memory."""

import math

from bslite.kernels.contracts.cpu.attention import AttentionGrad
from bslite.kernels.contracts.cpu.update import UpdateSweep
from bslite.machine import Machine
from bslite.passes import Layer
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import size_of
from bslite.plan.cpu.ops.attention import LONGEST, heads_of, places_of, row_mask
from bslite.plan.cpu.ops.move import in_bytes
from bslite.plan.cpu.split_attention import Size
from bslite.plan.cpu.step import CpuBuilder, step
from bslite.plan.cpu.tiling import line_tiling, max_rows, sweep
from bslite.plan.shared.attention import Matrices, lower

LEAST, MOST = 32, 96  # queries of a block: each adds to the sums of all keys, which may lie beyond L2
TABLE = 6  # elements of one segment of rank-one updates


@CPU.register("attention_grad")
def lower_attention_grad(b: CpuBuilder, layer: Layer) -> None:
    """Lower the gradient of attention as `attention` is, one item for each matrix."""
    roles = ("q", "k", "v", "grad", "mask")
    lower(b, layer, lambda name: b.read(name, inner=-1, exact=True), row_mask(b, layer), _step, roles)


def block_rows(machine: Machine, rows: int, keys: int) -> int:
    """Queries of a block: their weights and the gradients of those take half of L2."""
    most = min(MOST, max(LEAST, machine.l2 // (2 * 8 * keys)))
    return -(-rows // -(-rows // most))


def _step(b: CpuBuilder, layer: Layer, given: Matrices) -> None:
    """Append the step."""
    views, machine, lanes = given.views, b.machine, b.machine.lanes
    (rows, depth), (keys, features) = views["q"].shape[-2:], views["v"].shape[-2:]
    matrices, high = size_of(tuple(given.sizes)), block_rows(machine, rows, keys)
    weights, by_q, by_v = (line_tiling(machine, high, n) for n in (min(keys, LONGEST), depth, features))
    blocks = -(-keys // LONGEST)
    block = -(-keys // (blocks * lanes)) * lanes
    score_row = (-(-keys // lanes) + weights.width) * lanes  # of whole panels; and not a power of two
    parts = {
        "scores": high * score_row, "slopes": high * score_row, "stats": 2 * high, "table": TABLE,
        "k_panels": score_row * depth, "v_panels": score_row * features,
        "k_rows": keys * by_q.registers * lanes, "q_rows": high * by_q.registers * lanes,
        "grad_rows": high * by_v.registers * lanes,
        "k_sums": keys * by_q.registers * lanes, "v_sums": keys * by_v.registers * lanes,
    }  # fmt: skip
    places, scratch = places_of(parts, lanes)
    shared = heads_of(
        layer, given, Size(rows, keys, depth, features), shares=1, share_rows=rows, block=block,
        tile_rows=high, scores=places.pop("scores"), stats=places.pop("stats"), score_row=4 * score_row,
    )  # fmt: skip
    tail_keys = -(-keys // lanes) % weights.width or weights.width
    record = AttentionGrad(
        shared, grad=views["grad"].start, grad_axes=in_bytes(given.runs["grad"]),
        grad_row=4 * views["grad"].strides[-2], by_mask=int(layer.node.attrs["by_mask"]),
        key_width=weights.width, key_most=max_rows(machine, weights.width),
        key_sweep=sweep(machine, weights.width), tail_key_sweep=sweep(machine, tail_keys),
        width=by_q.width, panels=by_q.panels, tail=by_q.tail, most=max_rows(machine, by_q.width),
        sweep=sweep(machine, by_q.width), tail_sweep=sweep(machine, by_q.tail),
        update=_update(machine, by_q.width), tail_update=_update(machine, by_q.tail),
        wide=by_v.width, wide_panels=by_v.panels, wide_tail=by_v.tail,
        wide_update=_update(machine, by_v.width), tail_wide_update=_update(machine, by_v.tail),
        minus_inf=-math.inf, plus_inf=math.inf, **places,
    )  # fmt: skip
    step(b, record, matrices, [x for role, x in views.items() if role != "y"], [views["y"]], scratch)


def _update(machine: Machine, width: int) -> UpdateSweep:
    return UpdateSweep(width, max_rows(machine, width))
