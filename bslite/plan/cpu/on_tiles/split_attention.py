"""Attention whose operands are split into parts of bfloat16, where that is faster."""

import functools
from collections.abc import Callable
from typing import NamedTuple

from bslite.kernels.contracts.cpu.attention import Heads, SplitAttention
from bslite.kernels.contracts.cpu.tiles import COLS, HEAD, LINE, PARTS, ROWS, TERMS, TILE, TileSweep
from bslite.kernels.contracts.record import Operand
from bslite.machine import Machine
from bslite.passes import Layer
from bslite.plan.cpu.on_tiles.split import PANEL, SPLIT, STORED, WORTH, usual
from bslite.plan.cpu.outside import inexact_flag
from bslite.plan.cpu.reduction import LONGEST
from bslite.plan.cpu.sharing import item_count
from bslite.plan.cpu.step import CpuBuilder
from bslite.plan.cpu.tiling import line_tiling

KEYS = 256  # of a block at most: packed keys and values, and scores of a tile, should fit half of L2
TALL = 4 * 2 * ROWS  # rows of a tile of queries at most: a panel of keys, read from L2, meets that many
LEAST_ROWS = 128  # of an item: each item splits all keys and values for itself


class Size(NamedTuple):
    """Sizes of one matrix of queries."""

    rows: int
    keys: int
    depth: int
    features: int


def statistics(share_rows: int, tile_rows: int) -> dict[str, int]:
    """Numbers of what the softmax notes for rows, by the names of their places in `Heads`."""
    return {"largest": share_rows, "totals": share_rows, "fades": tile_rows}


def of_heads(places: dict[str, int]) -> dict[str, int]:
    """Takes out of ``places`` those that `Heads` has."""
    return {name: places.pop(name) for name in ("scores", *statistics(0, 0))}


def on_tiles(b: CpuBuilder, size: Size) -> bool:
    """Whether products of tiles compute attention of this size; a sum of scores is not cut into parts."""
    return bool(b.machine.tile_cycles) and size.depth <= LONGEST and is_faster(usual(b.machine), size)


@functools.lru_cache(4096)
def is_faster(machine: Machine, size: Size) -> bool:
    """Whether products of tiles take fewer cycles than multiply-adds; nothing but the sizes decides."""
    rows, keys, depth, features = size
    scores = line_tiling(machine, rows, min(keys, KEYS)).cycles / min(keys, KEYS) * keys
    added = scores * depth + line_tiling(machine, rows, features).cycles * keys
    tiles = -(-keys // COLS) * -(-depth // TERMS) + -(-features // COLS) * -(-keys // TERMS)
    split = rows * (depth + keys) + keys * (depth + features)
    stored = rows * (-(-keys // machine.lanes) + -(-features // machine.lanes))
    return (
        -(-rows // ROWS) * tiles * machine.tile_products * machine.tile_cycles
        + SPLIT[machine.tile_products] * split
        + STORED * stored
        < WORTH * added
    )


def _cut(machine: Machine, matrices: int, size: Size, parts: int) -> tuple[int, int, int, int]:
    """Keys of a block, rows of a tile and of an item, items of a matrix.

    The number of keys alone sets the blocks. A tile's memory and a block's keys take half of L2 at most, and
    there are items for every thread.
    """
    rows, keys, depth, features = size
    blocks = -(-keys // KEYS)
    block = keys if blocks == 1 else TERMS * -(-keys // (blocks * TERMS))
    row = 4 * block + parts * LINE * (-(-block // TERMS) + -(-depth // TERMS))
    packed = 2 * parts * block * (depth + features)
    most = max(2 * ROWS, min(TALL, int(machine.l2 / 2 - packed) // row // (2 * ROWS) * 2 * ROWS))
    wanted = -(-item_count(machine, matrices * rows * keys * (depth + features) / 32) // matrices)
    shares = max(1, min(-(-rows // LEAST_ROWS), wanted))
    share_rows = rows if shares == 1 else ROWS * -(-rows // (shares * ROWS))
    return block, min(most, share_rows), share_rows, -(-rows // share_rows)


def split_record(
    b: CpuBuilder, layer: Layer, heads: Callable[..., Heads], matrices: int, size: Size
) -> tuple[SplitAttention, int]:
    """The record, and elements of scratch memory; ``heads``: makes what both arithmetics share."""
    products = b.machine.tile_products
    parts = PARTS[products]
    block, tile_rows, share_rows, shares = _cut(b.machine, matrices, size, parts)
    of_depth, of_block = (-(-n // TERMS) for n in (size.depth, block))
    high = -(-tile_rows // ROWS) * ROWS
    q_pixel, e_pixel = (_apart(n * parts * LINE) for n in (of_depth, of_block))
    score_row = _apart(4 * COLS * -(-block // COLS))
    sizes = {
        "q_parts": high * q_pixel, "e_parts": high * e_pixel,
        "k_tiles": -(-block // PANEL) * of_depth * parts * 2 * TILE,
        "v_tiles": -(-size.features // PANEL) * of_block * parts * 2 * TILE,
        "panel": 4 * PANEL * size.depth, "scores": high * score_row,
        **{name: 4 * rows for name, rows in statistics(share_rows, tile_rows).items()},
    }  # fmt: skip
    places, at = dict[str, int](), HEAD
    for name, length in sizes.items():
        places[name] = at
        at += -(-length // LINE) * LINE
    shared = heads(
        block=block, tile_rows=tile_rows, share_rows=share_rows, shares=shares, score_row=score_row,
        **of_heads(places),
    )  # fmt: skip
    table = b.const("offsets", values=[n * parts * LINE for n in range(max(of_depth, of_block))])
    record = SplitAttention(
        shared, inexact_flag(b, layer), Operand(table, 0), parts=parts, q_pixel=q_pixel, e_pixel=e_pixel,
        sweep=TileSweep(products, parts), **places,
    )  # fmt: skip
    return record, at // 4


def _apart(row: int) -> int:
    """Bytes from row to row that do not let all rows of a tile meet in a few sets of L1."""
    return row + LINE * (row % (4 * LINE) == 0)
