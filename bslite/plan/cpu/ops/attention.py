"""Attention as one step, which holds the scores of a few rows at a time in a thread's scratch memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bslite.machine import Machine
from bslite.passes import Layer
from bslite.plan.core.loops import merged_axes, padded
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import NO_HALO, View, size_of
from bslite.plan.cpu.sharing import item_count
from bslite.plan.cpu.step import CpuBuilder, untyped
from bslite.plan.cpu.tiling import LineTiling, line_tiling, max_rows

LONGEST = 256  # keys of a block: their panels and a tile's scores are to lie in L1 and L2
OUTER = 3  # axes around the matrices that the kernel walks
CLEAR = 8  # registers that the kernel fills with zeros, at the start of scratch memory
LEAST_ROWS = 64  # of an item: each packs all keys and values for itself


@CPU.register("attention")
def lower_attention(b: CpuBuilder, layer: Layer) -> None:
    """Heads and batch are axes around matrices, walked by strides; where they do not merge, copies."""
    node, shape = layer.node, b.shapes[layer.name]
    names, batch = node.inputs, shape[:-2]
    q, k, v = (b.read(name, inner=-1, exact=True) for name in names[:3])
    (rows, _), keys = q.shape[-2:], k.shape[-2]
    kind = {"float32": 1, "bool": 2}[b.dtypes[names[3]]] if len(names) == 4 else 0
    groups = q.shape[-3] // k.shape[-3] if node.attrs["grouped"] else 1
    own = (*batch[:-1], batch[-1] // groups) if groups > 1 else batch  # the axes of k and v
    y, home = b.writable(layer.name, len(shape) - 1)
    views = {
        "q": q.broadcast((*batch, *q.shape[-2:])), "k": k.broadcast((*own, *k.shape[-2:])),
        "v": v.broadcast((*own, *v.shape[-2:])),
    }  # fmt: skip
    if kind:
        views["mask"] = _row_mask(b, b.values[names[3]], keys).broadcast((*batch, rows, keys))
    views["y"] = y
    if groups > 1:
        views = {role: _grouped(x, groups, repeat=role in "kv") for role, x in views.items()}
    merged = _merged(views)
    if merged is None:
        views = {role: _copied(b, x) for role, x in views.items() if role != "y"}
        y = b.fresh(shape, len(shape) - 1, NO_HALO)
        views["y"] = _grouped(y, groups, repeat=False) if groups > 1 else y
        merged = _merged(views)
        assert merged is not None
    _step(b, layer, kind, views, *merged)
    if y is not home:
        b.copy(y, home)


def _row_mask(b: CpuBuilder, mask: View, keys: int) -> View:
    """``mask`` with its rows contiguous and as long as there are keys."""
    if mask.shape[-1:] == (keys,):
        return b.arranged(mask, -1, exact=True)
    lead = mask.shape[:-1] or (1,)
    return _copied(b, mask.broadcast((*lead, keys)))


def _grouped(view: View, groups: int, repeat: bool) -> View:
    """The axis of heads cut into heads of k and v, and ``groups`` of q's for each; or those of k and v
    repeated so often.
    """
    (heads, *matrix), (step, *strides) = view.shape[-3:], view.strides[-3:]
    if repeat:
        cut, steps = (heads, groups), (step, 0)
    else:
        cut, steps = (heads // groups, groups), (step * groups, step)
    shape, lead = (*view.shape[:-3], *cut, *matrix), view.strides[:-3]
    return View(view.buffer, view.offset, shape, (*lead, *steps, *strides))


def _copied(b: CpuBuilder, view: View) -> View:
    """A copy with all that is repeated in memory of its own."""
    fresh = b.fresh(view.shape, len(view.shape) - 1, NO_HALO)
    b.copy(view, fresh)
    return fresh


def _merged(views: Mapping[str, View]) -> tuple[list[int], dict[str, list[int]]] | None:
    """The axes around the matrices as three, with each view's strides; None where they are more."""
    shape = views["y"].shape[:-2]
    sizes, runs = merged_axes(shape, [x.strides[:-2] for x in views.values()], by=len(views) - 1)
    if len(sizes) > OUTER:
        return None
    sizes, runs = padded(sizes, runs, OUTER)
    return sizes, dict(zip(views, runs, strict=True))


class Tiles(NamedTuple):
    """How a matrix of queries is worked off: keys of a block, rows of a tile and of an item, items; and
    registers.
    """

    block: int
    tile_rows: int
    share_rows: int
    shares: int
    scores: LineTiling
    values: LineTiling


def choose_tiles(machine: Machine, matrices: int, rows: int, keys: int, depth: int, features: int) -> Tiles:
    """Blocks by the number of keys alone, as equal as whole panels allow. A tile's rows so that their scores
    take no more than half of L1, items so that there are some for every thread.
    """
    blocks = -(-keys // LONGEST)
    scores = line_tiling(machine, min(rows, 2 * max_rows(machine, 2)), min(keys, LONGEST))
    panel = scores.width * machine.lanes
    block = keys if blocks == 1 else panel * -(-keys // (blocks * panel))
    values = line_tiling(machine, min(rows, 2 * max_rows(machine, 2)), features)
    most = max_rows(machine, max(scores.width, values.width))
    tile_rows = min(rows, most * max(1, int(machine.l1 / 2 / (4 * block)) // most))
    wanted = -(-item_count(machine, matrices * rows * keys * (depth + features) / 32) // matrices)
    tiles = max(1, min(-(-rows // max(LEAST_ROWS, tile_rows)), wanted))
    share_rows = -(-rows // tiles)
    return Tiles(block, tile_rows, share_rows, -(-rows // share_rows), scores, values)


def _step(
    b: CpuBuilder,
    layer: Layer,
    kind: int,
    views: Mapping[str, View],
    sizes: Sequence[int],
    runs: Mapping[str, Sequence[int]],
) -> None:
    """Append the step for views of one batch, whose axes are of these ``sizes`` and strides."""
    machine, attrs = b.machine, layer.node.attrs
    lanes = machine.lanes
    (rows, depth), (keys, features) = views["q"].shape[-2:], views["v"].shape[-2:]
    tiles = choose_tiles(machine, size_of(tuple(sizes)), rows, keys, depth, features)
    key_width, values = tiles.scores.width, tiles.values
    registers, value_registers = -(-tiles.block // lanes), -(-features // lanes)
    last_block = keys - tiles.block * ((keys - 1) // tiles.block)
    tail_keys = -(-last_block // lanes) % key_width or key_width
    score_row = (registers + 1) * lanes  # one more: rows a power of two apart would meet in one set of L1
    parts = {
        "k_panels": registers * lanes * depth, "v_panels": tiles.block * value_registers * lanes,
        "scores": tiles.tile_rows * score_row, "stats": 2 * tiles.share_rows,
    }  # fmt: skip
    args: dict[str, Any] = {
        "n1": sizes[1], "n2": sizes[2], "rows": rows, "keys": keys, "depth": depth, "features": features,
        "shares": tiles.shares, "share_rows": tiles.share_rows, "block": tiles.block,
        "tile_rows": tiles.tile_rows, "key_width": key_width, "key_most": max_rows(machine, key_width),
        "key_sweep": ["gemm_sweep", key_width, max_rows(machine, key_width)],
        "tail_key_sweep": ["gemm_sweep", tail_keys, max_rows(machine, tail_keys)],
        "width": values.width, "panels": values.panels, "tail": values.tail,
        "most": max_rows(machine, values.width),
        "sweep": ["gemm_sweep", values.width, max_rows(machine, values.width)],
        "tail_sweep": ["gemm_sweep", values.tail, max_rows(machine, values.tail)],
        "mask_kind": kind, "causal": int(attrs["is_causal"]), "safe": int(attrs["no_key"] == "zero"),
        "scale": float(1 / math.sqrt(depth) if attrs["scale"] is None else attrs["scale"]),
        "score_row": 4 * score_row, "minus_inf": -math.inf, "plus_inf": math.inf,
    }  # fmt: skip
    at = CLEAR * lanes
    for name, size in parts.items():
        args[name] = 4 * at
        at += -(-size // lanes) * lanes
    for role in ("q", "k", "v", "mask", "y"):
        view, strides = views.get(role), runs.get(role, [0] * OUTER)
        args |= {f"{role}{i}": 4 * s for i, s in enumerate(strides)}
        args[f"{role}_row"] = 4 * view.strides[-2] if view is not None else 0
    operands = {role: (x.buffer, x.offset) for role, x in views.items()}
    operands.setdefault("mask", operands["q"])
    reads = [x for role, x in views.items() if role != "y"]
    untyped(
        b, "attention", size_of(tuple(sizes)) * tiles.shares, args, operands, reads, [views["y"]], scratch=at
    )
