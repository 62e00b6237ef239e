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

# As 12,000 cuts of layers of five networks took on a Xeon (docs/decisions/063).
ITEM = 1500.0  # cycles that an item costs: the unit is readied, its first weights are waited for
HALF = 0.6  # of the time of two rows of tiles, that one takes: it loads as much of B
PACE = 1.2  # times the cycles of the unit's peak: its pace depends on the numbers
EXPOSED = 0.5  # share of the time that weights take from L2, which products do not hide
OVERLAP = 2.7  # exponent: products and weights from beyond L2 take ``(p ** x + w ** x) ** (1 / x)``
STREAMED = 1.2  # times the rate of plain reads, that weights come at in streams
STAYS, GOES = 0.3, 0.6  # shares of L2: weights and parts of up to so much all stay there; of so much, none
HELD = 0.4  # share of L2 up to which parts stay while weights pass them
NEAR = 0.25  # share of L2 up to which the thread that made a value still finds it there
PAGE = 4096  # bytes
PAGES = 50  # that a core fetches from by itself, about
APART = 0.5  # share by which results take longer with each doubling of the pages that their rows lie on


class Band(NamedTuple):
    """A layer as tiles see it. ``images`` x ``lines`` of ``pixels``, which lie ``pitch`` apart in a band, by
    ``panels``; a band reads ``step`` rows for each line, and ``halo`` rows more. Cycles: of ``block`` of two
    by two tiles over the whole sum, to ``store`` a pixel's results of a panel, to ``split`` a row. Bytes:
    ``read`` of a row, ``kept`` of it in parts, ``sums`` of a line that are kept for each panel, ``weights``
    of all panels, ``made`` of an image, to which as many are ``added``.
    """

    images: int
    lines: int
    pixels: int
    pitch: int
    panels: int
    added: bool
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
                lines, panels = -(-of.lines // bands), -(-of.panels // blocks)
                cut = Items(lines, bands, panels, blocks, outer)
                price = _price(machine, of, cut)
                if price < cost * 0.999:
                    best, cost = cut, price
    return best


def leaving(machine: Machine, of: Band, cut: Items) -> float:
    """The share of weights that leave L2 before the next band meets them."""
    blocks = 1 if cut.blocks_outer else min(cut.blocks, _items(machine, of, cut))
    held = blocks * of.weights / cut.blocks + _band_bytes(of, cut)
    return min(1.0, max(0.0, (held / machine.l2 - STAYS) / (GOES - STAYS)))


def _items(machine: Machine, of: Band, cut: Items) -> int:
    """Items of a thread."""
    return -(-of.images * cut.bands * cut.blocks // machine.threads)


def _band_bytes(of: Band, cut: Items) -> int:
    """Bytes of a band's parts, and of its sums that are kept."""
    return (cut.band_lines * of.step + of.halo) * of.kept + cut.band_lines * cut.block_panels * of.sums


def _price(machine: Machine, of: Band, cut: Items) -> float:
    """Cycles of the slowest thread."""
    t, l2 = machine.threads, machine.l2
    lines, bands, panels, blocks, outer = cut
    rows = (lines - 1) * of.pitch + of.pixels
    tiles, rest = divmod(rows, 2 * ROWS)
    high = tiles + (0.0 if not rest else HALF if rest <= ROWS else 1.0)
    read = lines * of.step + of.halo
    all_bands = of.images * bands
    by_lines = all_bands >= t and not outer  # are threads' parts; else they are channels
    items = _items(machine, of, cut)
    splits = items if outer or of.sums else -(-items // blocks)
    product, store = panels * high * of.block * PACE, panels * lines * of.pixels * of.store
    split = read * of.split
    compute = items * (store + ITEM) + splits * split
    if t > 1:
        compute += UNEVEN * (product + store + split)
    # Weights are fetched while others are multiplied: once, or again where L2 does not keep them meanwhile.
    block_bytes, band_bytes = of.weights / blocks, _band_bytes(of, cut)
    met = -(-items // all_bands) if outer else min(items, blocks)
    weights = met * block_bytes / machine.memory_bytes_per_cycle
    again = (items - met) * leaving(machine, of, cut)
    weights += again * block_bytes / (STREAMED * machine.l3_bytes_per_cycle)
    compute += EXPOSED * items * block_bytes / machine.l2_bytes_per_cycle  # from L2, for each band
    compute += ((items * product) ** OVERLAP + weights**OVERLAP) ** (1.0 / OVERLAP)
    # Parts that L2 does not keep come for each panel from beyond it.
    parts = min(1.0, max(0.0, band_bytes / l2 / HELD - 1.0)) * items * panels * read * of.kept
    # Pixels come from beyond L2, unless the thread made them; so do lines that results are written to.
    pixels, near = float(splits * read * of.read), NEAR * l2 * t
    if of.images * of.lines * of.step * of.read < near:
        pixels *= 0.0 if by_lines else 1.0 - 1.0 / t
    image, results = of.images * of.made, 0.0
    if image > l2 * t:
        pages = (2 if of.added else 1) * rows * min(1.0, of.made / (of.lines * of.pixels) / PAGE)
        results = image / t * (3 if of.added else 2)
        results *= 1.0 + APART * min(2.0, max(0.0, math.log2(pages / PAGES)))
    elif not by_lines:
        results = 2 * image / t * (1.0 - 1.0 / t)  # the next layer's threads fetch what others wrote
    return compute + (pixels + (parts + results) / STREAMED) / machine.l3_bytes_per_cycle
