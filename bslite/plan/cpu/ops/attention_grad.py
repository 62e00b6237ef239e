"""Lowering of attention's gradient to one step: all weights of a few queries at a time, in scratch memory."""

import math

from bslite.kernels.contracts.cpu.attention import AttentionGrad
from bslite.kernels.contracts.cpu.update import UpdateSweep
from bslite.machine import Machine
from bslite.passes import Layer
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import View, size_of
from bslite.plan.cpu.on_tiles.split_attention import Size, of_heads, statistics
from bslite.plan.cpu.ops.attention import LONGEST, heads_of, panels_of, places_of, row_mask
from bslite.plan.cpu.ops.move import in_bytes
from bslite.plan.cpu.ops.reduce import add_parts
from bslite.plan.cpu.step import CpuBuilder, step
from bslite.plan.cpu.tiling import line_tiling, max_rows
from bslite.plan.shared.attention import Matrices, lower

LEAST = 64  # queries of a block, which adds to the sums of all keys: these may lie beyond L2
MOST, CAUSAL = 128, 48  # the same at most; of causal ones, for a block computes all keys up to its last query
SHARE, SHARES = 512, 8  # queries of a share at least, and shares of an image at most
TABLE = 6  # elements of one segment of rank-one updates


@CPU.register("attention_grad")
def lower_attention_grad(b: CpuBuilder, layer: Layer) -> None:
    """Lower the gradient of attention as `attention` is, one item for each matrix."""
    lower(b, layer, lambda name: b.read(name, inner=-1, exact=True), row_mask(b, layer), _step)


def cut(matrices: int, rows: int) -> int:
    """Queries of a share, for so many matrices of an image. Each share has sums of its own for all keys."""
    shares = max(1, min(rows // SHARE, SHARES // matrices))
    return -(-rows // shares)


def block_rows(machine: Machine, rows: int, keys: int, causal: bool) -> int:
    """Queries of a block: their weights and the gradients of those take half of L2, if that is enough."""
    most = CAUSAL if causal else min(MOST, max(LEAST, machine.l2 // (2 * 8 * keys)))
    return -(-rows // -(-rows // most))


def _step(b: CpuBuilder, layer: Layer, given: Matrices) -> None:
    """Append the step."""
    views, machine, lanes = given.views, b.machine, b.machine.lanes
    (rows, depth), (keys, features) = views["q"].shape[-2:], views["v"].shape[-2:]
    matrices, lead = size_of(tuple(given.sizes)), b.shapes[layer.name][1:-1]
    share_rows = cut(size_of(lead), rows)
    high = block_rows(machine, share_rows, keys, layer.node.attrs["is_causal"])
    shares = -(-rows // share_rows)
    y, size = views["y"], keys * (depth + features)
    sums = b.dense((shares, *given.sizes, size)) if shares > 1 else y
    weights, by_q, by_v = (line_tiling(machine, high, n) for n in (min(keys, LONGEST), depth, features))
    blocks = -(-keys // LONGEST)
    block = -(-keys // (blocks * lanes)) * lanes
    columns = -(-keys // lanes) * lanes
    score_row = (columns // lanes + 1 | 1) * lanes  # of an odd number of registers: rows share no set of L1
    parts = {
        "scores": high * score_row, "slopes": high * score_row, "table": TABLE, **statistics(high, high),
        "k_panels": columns * depth, "v_panels": columns * features,
        "k_rows": keys * by_q.registers * lanes, "q_rows": high * by_q.registers * lanes,
        "grad_rows": high * by_v.registers * lanes,
        "k_sums": keys * by_q.registers * lanes, "v_sums": keys * by_v.registers * lanes,
    }  # fmt: skip
    places, scratch = places_of(parts, lanes)
    shared = heads_of(
        layer, given, Size(rows, keys, depth, features), shares=shares, share_rows=share_rows, block=block,
        tile_rows=high, score_row=4 * score_row, **of_heads(places),
    )  # fmt: skip
    tail_keys = -(-keys // lanes) % weights.width or weights.width
    record = AttentionGrad(
        shared, grad=views["grad"].start, grad_axes=in_bytes(given.runs["grad"]),
        grad_row=4 * views["grad"].strides[-2], sums=sums.start, matrices=matrices,
        by_mask=int(layer.node.attrs["by_mask"]),
        panels_of=panels_of(machine, weights.width, tail_keys, by_q),
        update=_update(machine, by_q.width), tail_update=_update(machine, by_q.tail),
        wide=by_v.width, wide_panels=by_v.panels, wide_tail=by_v.tail,
        wide_update=_update(machine, by_v.width), tail_wide_update=_update(machine, by_v.tail),
        minus_inf=-math.inf, plus_inf=math.inf, **places,
    )  # fmt: skip
    made = [y, sums] if shares > 1 else [y]
    step(b, record, matrices * shares, [x for role, x in views.items() if role != "y"], made, scratch)
    if shares > 1:
        strides = (*given.runs["y"], 1)
        add_parts(b, sums, View(y.buffer, y.offset + rows * depth, (*given.sizes, size), strides))


def _update(machine: Machine, width: int) -> UpdateSweep:
    return UpdateSweep(width, max_rows(machine, width))
