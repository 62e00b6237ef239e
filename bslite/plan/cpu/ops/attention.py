"""Lowering of attention to one step, which holds the scores of a few rows at a time in scratch memory."""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import NamedTuple

from bslite.kernels.contracts.cpu.attention import Attention, Heads, Panels, RoundedAttention
from bslite.kernels.contracts.record import Operand
from bslite.machine import Machine
from bslite.passes import Layer
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import View, size_of
from bslite.plan.cpu.on_tiles.split_attention import Size, of_heads, on_tiles, split_record, statistics
from bslite.plan.cpu.ops.move import in_bytes
from bslite.plan.cpu.outside import inexact_flag
from bslite.plan.cpu.rounded import ROUND, cells
from bslite.plan.cpu.sharing import item_count
from bslite.plan.cpu.step import CpuBuilder, step
from bslite.plan.cpu.tiling import LineTiling, line_tiling, max_rows, sweep
from bslite.plan.shared.attention import OUTER, Matrices, copied, lower, scale_of

LONGEST = 256  # keys of a block at most: their panels and a tile's scores should fit L1 and L2
CLEAR = 8  # registers of zeros that the kernel keeps at the start of scratch memory
LEAST_ROWS = 64  # of an item: each item packs all keys and values for itself


@CPU.register("attention")
def lower_attention(b: CpuBuilder, layer: Layer) -> None:
    """Lower attention: heads and batch are axes around matrices, walked by strides or copied."""
    lower(b, layer, lambda name: b.read(name, inner=-1, exact=True), row_mask(b, layer), _step)


def row_mask(b: CpuBuilder, layer: Layer) -> Callable[[View], View]:
    """What brings a mask or noise to contiguous rows, as long as there are keys."""
    keys = b.shapes[layer.node.inputs[1]][-2]

    def arranged(mask: View) -> View:
        if mask.shape[-1:] == (keys,):
            return b.arranged(mask, -1, exact=True)
        lead = mask.shape[:-1] or (1,)
        return copied(b, mask.broadcast((*lead, keys)))

    return arranged


class Tiles(NamedTuple):
    """The tiles of a matrix of queries: keys of a block, rows of a tile and of an item, items, and vector
    registers.
    """

    block: int
    tile_rows: int
    share_rows: int
    shares: int
    scores: LineTiling
    values: LineTiling


def choose_tiles(machine: Machine, matrices: int, rows: int, keys: int, depth: int, features: int) -> Tiles:
    """The number of keys alone sets the blocks, as equal as whole panels allow. The scores of a tile's rows
    take at most half of L1, and there are items for every thread.
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


def _step(b: CpuBuilder, layer: Layer, given: Matrices) -> None:
    """Append the attention step."""
    views = given.views
    (rows, depth), (keys, features) = views["q"].shape[-2:], views["v"].shape[-2:]
    size = Size(rows, keys, depth, features)
    matrices = size_of(tuple(given.sizes))
    heads = functools.partial(heads_of, layer, given, size)
    exact = layer.node.attrs["dropped"]  # noise may be any number, which has no parts
    if on_tiles(b, size) and not exact:
        record, scratch = split_record(b, layer, heads, matrices, size)
    else:
        dots = b.machine.dot_cycles > 0 and pays(size) and not exact
        record, scratch = _record(b.machine, heads, matrices, size, inexact_flag(b, layer) if dots else None)
    reads = [x for role, x in views.items() if role != "y"]
    step(b, record, matrices * record.of.shares, reads, [views["y"]], scratch=scratch)


def heads_of(layer: Layer, given: Matrices, size: Size, **cut: int) -> Heads:
    """What all kernels share; ``cut``: how rows and keys are cut, and places of scores."""
    views, sizes, runs, mask = given
    attrs = layer.node.attrs
    none = views["q"], (0,) * OUTER, 0
    matrices = {role: (x, runs[role], x.strides[-2]) for role, x in views.items()}
    operands = [matrices.get(role, none) for role in ("q", "k", "v", "mask", "noise", "y")]
    return Heads(
        *(x.start for x, _, _ in operands), *(in_bytes(axes) for _, axes, _ in operands), sizes[1], sizes[2],
        *(4 * row for _, _, row in operands), **size._asdict(), mask_kind=mask,
        dropped=int(attrs["dropped"]),
        causal=int(attrs["is_causal"]), safe=int(attrs["no_key"] == "zero"),
        scale=scale_of(layer.node, size.depth), **cut,
    )  # fmt: skip


def _record(
    machine: Machine, heads: Callable[..., Heads], matrices: int, size: Size, flag: Operand | None
) -> tuple[Attention, int]:
    """The record, and elements of scratch memory; with a ``flag``, by dot products of bfloat16."""
    lanes = machine.lanes
    rows, keys, depth, features = size
    tiles = choose_tiles(machine, matrices, rows, keys, depth, features)
    key_width, values = tiles.scores.width, tiles.values
    registers, value_registers = -(-tiles.block // lanes), -(-features // lanes)
    last_block = keys - tiles.block * ((keys - 1) // tiles.block)
    tail_keys = -(-last_block // lanes) % key_width or key_width
    score_row = (registers + 1) * lanes  # one more: rows a power of two apart would share one set of L1
    terms, block = (cells(depth), cells(tiles.block)) if flag else (depth, tiles.block)
    cell_row, e_row = (lanes * (-(-n // lanes) + 1) for n in (terms, block))  # one more: as there
    parts = {
        "k_panels": registers * lanes * terms, "v_panels": block * value_registers * lanes,
        "scores": tiles.tile_rows * score_row, **statistics(tiles.share_rows, tiles.tile_rows),
    }  # fmt: skip
    if flag:
        rows = tiles.tile_rows
        parts |= {"k_cells": tiles.block * cell_row, "q_cells": rows * cell_row, "e_cells": rows * e_row}
    places, at = places_of(parts, lanes)
    shared = heads(
        shares=tiles.shares, share_rows=tiles.share_rows, block=tiles.block, tile_rows=tiles.tile_rows,
        score_row=4 * score_row, **of_heads(places),
    )  # fmt: skip
    panels = panels_of(machine, key_width, tail_keys, values, flag is not None)
    record = Attention(
        shared, panels, minus_inf=-math.inf, plus_inf=math.inf,
        k_panels=places.pop("k_panels"), v_panels=places.pop("v_panels"),
    )  # fmt: skip
    if flag:
        record = RoundedAttention(
            **{field.name: getattr(record, field.name) for field in fields(record)}, flag=flag,
            cell_row=4 * cell_row, e_row=4 * e_row, **places,
        )  # fmt: skip
    return record, at


def panels_of(machine: Machine, keys: int, tail: int, made: LineTiling, dots: bool = False) -> Panels:
    """The panels of ``keys`` registers of keys, the last one of ``tail``, and of what is ``made``."""
    key_sweep, tail_key_sweep, line, tail_line = (
        sweep(machine, n, dots) for n in (keys, tail, made.width, made.tail)
    )
    return Panels(
        keys, max_rows(machine, keys), key_sweep, tail_key_sweep, made.width, made.panels, made.tail,
        max_rows(machine, made.width), line, tail_line,
    )  # fmt: skip


def places_of(parts: Mapping[str, int], lanes: int) -> tuple[dict[str, int], int]:
    """Where parts of so many elements lie in scratch memory, in bytes, and elements of all of it."""
    places, at = dict[str, int](), CLEAR * lanes
    for name, length in parts.items():
        places[name] = 4 * at
        at += -(-length // lanes) * lanes
    return places, at


def pays(size: Size) -> bool:
    """Whether dot products of bfloat16 save more cycles than rounding takes; the sizes alone decide."""
    rows, keys, depth, features = size
    rounding = ROUND * (rows * (depth + keys) + keys * (depth + 2 * features))
    return rows * keys * (depth + features) / (2 * 16) > rounding
