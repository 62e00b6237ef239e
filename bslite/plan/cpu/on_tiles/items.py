"""The cut of a layer on tiles into items.

As `choose_items` prices it, with what tiles add: a band of lines takes whole tiles of 16 outputs, and each
thread splits the rows that its bands read.
"""

import functools
import math
from typing import NamedTuple

from bslite.kernels.contracts.cpu.tiles import ROWS
from bslite.machine import Machine
from bslite.plan.cpu.tiling import UNEVEN, Items, parts_worth_trying

ITEM = 1000.0  # cycles that an item costs: the unit is readied, its first weights are waited for
HALF = 0.6  # of the time of two rows of tiles, that one takes: it loads as much of B
STAYS = 0.4  # of L2: what stays there while other things pass


class Band(NamedTuple):
    """A layer as tiles see it. ``images`` x ``lines`` of ``pixels``, which lie ``pitch`` apart in a band, by
    ``panels``; a band reads ``step`` rows for each line, and ``halo`` rows more. Cycles: of ``block`` of two
    by two tiles over the whole sum, to ``store`` a pixel's results of a panel, to ``split`` a row. Bytes:
    ``read`` of a row, ``kept`` of it in parts, ``sums`` of a line that are kept for each panel, ``weights``
    of all panels, ``made`` of an image.
    """

    images: int
    lines: int
    pixels: int
    pitch: int
    panels: int
    step: int
    halo: int
    block: float
    store: float
    split: float
    read: int
    kept: int
    sums: int
    weights: int
    made: int


@functools.lru_cache(4096)
def tile_items(machine: Machine, of: Band) -> Items:
    """The cut into items with the least predicted time."""
    best, cost = Items(of.lines, 1, of.panels, 1, False), math.inf
    for bands in parts_worth_trying(of.lines):
        for blocks in parts_worth_trying(of.panels):
            if of.images * bands * blocks > 4096:
                continue
            for outer in (False, True) if of.images * bands > 1 else (False,):
                price = _price(machine, of, bands, blocks, outer)
                if price < cost * 0.999:
                    lines, panels = -(-of.lines // bands), -(-of.panels // blocks)
                    best, cost = Items(lines, bands, panels, blocks, outer), price
    return best


def _price(machine: Machine, of: Band, bands: int, blocks: int, outer: bool) -> float:
    """Cycles of the slowest thread."""
    t, l2 = machine.threads, STAYS * machine.l2
    lines, panels = -(-of.lines // bands), -(-of.panels // blocks)
    rows = (lines - 1) * of.pitch + of.pixels
    tiles, rest = divmod(rows, 2 * ROWS)
    high = tiles + (0.0 if not rest else HALF if rest <= ROWS else 1.0)
    read = lines * of.step + of.halo
    item = panels * (high * of.block + lines * of.pixels * of.store)
    items = -(-of.images * bands * blocks // t)
    splits = items if outer or of.sums else -(-items // blocks)
    compute = items * (item + ITEM) + splits * read * of.split
    if t > 1:
        compute += UNEVEN * (item + read * of.split)
    # From memory, a thread's weights come while its first band meets them, or it waits.
    first = -(-items // (of.images * bands)) if outer else min(items, blocks)
    compute += max(0.0, first * (of.weights / blocks / machine.memory_bytes_per_cycle - item))
    band_bytes, block_bytes = read * of.kept + lines * panels * of.sums, of.weights / blocks
    all_bands = of.images * bands
    if not outer and of.weights < l2:
        weights = t * of.weights
    elif outer and block_bytes < l2:
        weights = min(t, all_bands) * of.weights
    else:
        weights = all_bands * of.weights
    # Parts that L2 does not keep come for each panel from beyond it; pixels are read by each block of panels.
    again = min(1.0, max(0.0, 2.0 * band_bytes / l2 - 2.0)) * of.images * bands * of.panels * read * of.kept
    local = 1.0 if not outer and all_bands >= t else 1.0 / t
    reads = (blocks if outer else min(t, blocks)) - local
    image = of.images * bands * read * of.read * reads
    astray = 0.0 if all_bands >= t else of.images * of.made * (1.0 - 1.0 / t)
    return compute + (weights + image + again + astray) / (t * machine.l3_bytes_per_cycle)
