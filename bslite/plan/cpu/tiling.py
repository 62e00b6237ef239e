"""The choice of register tiles, bands of lines and blocks of panels by the machine model."""

import functools
import math
from typing import NamedTuple

from bslite.kernels.contracts.cpu.gemm import Cut
from bslite.kernels.contracts.cpu.sweep import GemmSweep, Narrow
from bslite.machine import Machine


class LineTiling(NamedTuple):
    """The assignment of output channels and pixels to registers: ``width`` registers a panel, and the cut."""

    width: int
    tail: int  # registers of the last panel
    panels: int
    cut: Cut
    cycles: float  # per line and unit of reduction depth, for all panels

    @property
    def registers(self) -> int:
        """The registers of all panels."""
        return (self.panels - 1) * self.width + self.tail


ITEM = 300.0  # cycles that an item costs
#: The share of the largest item that threads wait for at the end: on a shared host one core is often slower
#: than the other, and other threads can take items that have not begun.
UNEVEN = 0.15
WIDTHS = (1, 2, 3, 4)  # registers of a panel; the last panel may be narrower
#: Share of the cycles from which on weights are packed again, in panels of another width: it takes as long as
#: some runs, and memory for a second copy.
REPACK = 0.85
REST = 1.03  # the price of a step of its own for the pixels that remain
UNSHARED = 1.02  # the price of lines that do not divide evenly among threads
MANY = 4  # panels for each thread, from which on threads may share out those of one line
ACROSS = 8  # pixels of a tile whose lanes run along the sum: more are more places that memory is read from
TALLEST = 14  # taller gains nothing: 8 accumulators already hide the latency of two multiply-adds a cycle


def max_rows(machine: Machine, vecs: int) -> int:
    """The most pixels of a tile: accumulators, one register per B vector, one for the broadcast."""
    return max(1, min(TALLEST, (machine.registers - vecs - 1) // vecs))


def sweep(
    machine: Machine, vecs: int, dots: bool = False, across: int = 0, narrow: Narrow = Narrow.NO
) -> GemmSweep:
    """The microkernel for panels of ``vecs`` registers; ``dots``: of cells of two bfloat16; ``across``: for
    so many outputs, with lanes that run along the sum; ``narrow``: how the weights lie in memory.
    """
    if across:
        return GemmSweep(across, across_rows(machine, across), across=True)
    return GemmSweep(vecs, max_rows(machine, vecs), dots=dots, narrow=narrow)


def across_rows(machine: Machine, outputs: int) -> int:
    """The most pixels of a tile whose lanes run along the sum: an accumulator for each of a pixel's
    ``outputs``, a register of weights for each output, and one of the pixel; 0 where lanes are too few.
    """
    most = min(ACROSS, (machine.registers - outputs - 2) // outputs)
    return most if most > 1 and machine.lanes >= 8 and outputs <= machine.lanes else 0


def across_tiling(machine: Machine, pixels: int, outputs: int) -> LineTiling:
    """The cut of a line of ``pixels`` by ``outputs`` whose lanes run along the sum."""
    cut = cut_line(pixels, across_rows(machine, outputs))
    tiles = (cut.tiles1, cut.rows1), (cut.tiles2, cut.rows2)
    return LineTiling(
        1, 1, 1, cut, sum(n * tile_cycles(machine, r, outputs) for n, r in tiles) / machine.lanes
    )


def cut_line(pixels: int, most: int) -> Cut:
    """The fewest tiles of at most ``most`` rows, with heights that differ by at most one."""
    tiles = -(-pixels // most)
    low, high = pixels // tiles, pixels % tiles
    if high == 0:
        return Cut(tiles, low, 0, low)
    return Cut(high, low + 1, tiles - high, low)


def tile_cycles(machine: Machine, rows: int, vecs: int) -> float:
    """The cycles of one unit of depth: bound by multiply-add ports, load ports, latency, or B from L2."""
    return max(
        rows * vecs / machine.fma_ports,
        (rows + vecs) / machine.fma_ports,
        machine.fma_latency,
        vecs * machine.lanes * 4 / machine.l2_bytes_per_cycle,
    )


@functools.lru_cache(4096)
def line_tiling(machine: Machine, pixels: int, channels: int, panel: int = 0, packed: int = 0) -> LineTiling:
    """The panel width and cut with the fewest cycles for a line of ``pixels`` by ``channels`` outputs;
    ``panel``: the width, if it is given; ``packed``: one that is taken unless another is much better.
    """
    registers = -(-channels // machine.lanes)
    best: LineTiling | None = None
    for width in (panel,) if panel else dict.fromkeys((packed or WIDTHS[0], *WIDTHS)):
        if width > registers and width > 1:
            continue
        panels = -(-registers // width)
        tail = registers - (panels - 1) * width
        cut = cut_line(pixels, max_rows(machine, width))

        def line_cycles(vecs: int, cut: Cut = cut) -> float:
            return cut.tiles1 * tile_cycles(machine, cut.rows1, vecs) + cut.tiles2 * tile_cycles(
                machine, cut.rows2, vecs
            )

        cycles = (panels - 1) * line_cycles(width) + line_cycles(tail)
        # A wide panel reads more of B per cycle: prefer the narrower of equals, unless nothing is reused
        # anyway.
        if best is None or cycles < best.cycles * (REPACK if best.width == packed else 0.97):
            best = LineTiling(width, tail, panels, cut, cycles)
    assert best is not None
    return best


@functools.lru_cache(4096)
def line_length(machine: Machine, pixels: int, channels: int, images: int = 1) -> int:
    """The length of the lines with the cheapest tiling, for the pixels of each image, which may be cut into
    lines anywhere.

    It divides ``pixels`` if such lines are near the best ones; else a shorter line remains.
    """
    tall = max_rows(machine, 2)
    whole = line_tiling(machine, pixels, channels)
    best, cost = pixels, whole.cycles * _uneven(machine, images, whole.panels)
    if pixels > 16 * tall and (pixels > 64 * tall or whole.panels < MANY * machine.threads):
        cost = math.inf  # long lines leave too few to divide among cores
    lengths = range(min(pixels, 16 * tall), max(1, min(tall, pixels) // 2) - 1, -1)
    least = pixels * whole.registers / machine.fma_ports
    for divides in (True, False):
        if not divides and cost <= REST * least:
            break  # no others can be cheaper
        for length in lengths:
            lines, rest = divmod(pixels, length)
            if divides == bool(rest):
                continue
            tiling = line_tiling(machine, length, channels)
            cycles = tiling.cycles * lines * _uneven(machine, images * lines, tiling.panels)
            if rest:
                after = line_tiling(machine, rest, channels, tiling.width)
                cycles = REST * (cycles + after.cycles * _uneven(machine, images, after.panels))
            if cycles < cost * 0.999:
                best, cost = length, cycles
    return best


def _uneven(machine: Machine, lines: int, panels: int) -> float:
    """What it costs that threads share out panels of lines where lines do not divide evenly among them: the
    largest share, and `UNSHARED` unless one line has many panels.
    """
    threads, parts = machine.threads, lines * panels
    if lines % threads == 0:
        return 1.0
    share = threads * -(-parts // threads) / parts
    return share if lines == 1 and panels >= MANY * threads else UNSHARED * share


class Items(NamedTuple):
    """A layer cut into ``images * bands * blocks`` independent items."""

    band_lines: int
    bands: int
    block_panels: int
    blocks: int
    blocks_outer: bool


@functools.lru_cache(4096)
def choose_items(
    machine: Machine,
    images: int,
    lines: int,
    panels: int,
    cycles: float,
    image_bytes: int,
    weight_bytes: int,
    made_bytes: int,
    each: float = 0.0,
) -> Items:
    """The cut into items with the least predicted time.

    ``cycles`` is the compute of the whole layer on one core, to which each block of panels adds ``each``;
    ``image_bytes`` and ``made_bytes`` are the bytes read and written for an image. The price has three
    parts: the slowest core's share and the wait for the last item; the weights through L2, once for each band
    of each image; and the traffic from beyond L2: an image once per block of panels (once per panel where a
    band does not stay in L2), the weights once per band (once per core where they stay in L2), and what the
    next layer finds in another core's L2 where threads share out channels and not bands.
    """
    t = machine.threads
    best, cost = Items(lines, 1, panels, 1, False), math.inf
    for bands in parts_worth_trying(lines):
        band_lines = -(-lines // bands)
        for blocks in parts_worth_trying(panels):
            block_panels = -(-panels // blocks)
            items = images * bands * blocks
            if items > 4096:
                continue
            largest = (cycles * (block_panels / panels) + each) / images * (band_lines / lines)
            compute = -(-items // t) * largest + ITEM * items / t
            if t > 1:
                compute += UNEVEN * largest
            compute += images * bands * weight_bytes / (t * machine.l2_bytes_per_cycle)
            astray = 0.0 if images * bands >= t else images * made_bytes * (1.0 - 1.0 / t)
            band_bytes = image_bytes / bands
            block_bytes = weight_bytes / blocks
            band_stays = band_bytes < 0.4 * machine.l2
            for outer in (False, True):
                if not outer and weight_bytes < 0.4 * machine.l2:
                    weight_traffic = t * weight_bytes
                elif outer and block_bytes < 0.4 * machine.l2:
                    weight_traffic = min(t, images * bands) * weight_bytes
                else:
                    weight_traffic = images * bands * weight_bytes
                image_reads = (blocks if outer else min(t, blocks)) if band_stays else panels
                # Of the first reads, a thread finds those of the bands that it wrote in its own L2.
                local = 1.0 if band_stays and not outer and images * bands >= t else 1.0 / t
                image_traffic = images * image_bytes * (image_reads - local)
                traffic = (weight_traffic + image_traffic + astray) / (t * machine.l3_bytes_per_cycle)
                if compute + traffic < cost * 0.999:
                    best, cost = Items(band_lines, bands, block_panels, blocks, outer), compute + traffic
    return best


#: Sizes of parts tried where there are many: small ones are what makes the image of a band stay in L2.
SIZES = (*range(1, 17), 20, 24, 28, 32, 40, 48, 56, 64)


def parts_worth_trying(n: int) -> list[int]:
    """Numbers of equal parts worth trying, each distinct part size once: all, or where there are many, those
    of up to 32 parts and those of small parts.
    """
    if n <= 64:
        return sorted({-(-n // size) for size in range(1, n + 1)})
    return sorted({-(-n // -(-n // k)) for k in range(1, 33)} | {-(-n // size) for size in SIZES if size < n})
