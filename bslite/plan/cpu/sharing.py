"""Cuts layers whose work is proportional to their size into items for the threads."""

from bslite.kernels.contracts.cpu.shares import PlaneShares, Shares
from bslite.machine import Machine

ITEM_CYCLES = 1000  # an item should outweigh the cost of claiming it: some hundred cycles
ITEMS_PER_THREAD = 8  # enough to make up for a late thread
RUN = 4  # registers of channels that the kernels take at once


def item_count(machine: Machine, cycles: float) -> int:
    """The number of items for work of ``cycles`` on one core."""
    threads = machine.threads
    if threads == 1:
        return 1
    count = max(1, min(ITEMS_PER_THREAD * threads, int(cycles / ITEM_CYCLES)))
    return count if count < threads else count // threads * threads


def share_image(machine: Machine, images: int, lines: int, channels: int, cycles: float) -> Shares:
    """Whole images if they are enough, else bands of lines, and blocks of channels if lines are too few."""
    wanted = item_count(machine, cycles)
    registers = -(-channels // machine.lanes)
    band_lines = -(-lines // min(lines, -(-wanted // images)))
    bands = -(-lines // band_lines)
    runs = -(-registers // RUN)
    block_registers = RUN * -(-runs // min(runs, -(-wanted // (images * bands))))
    return Shares(band_lines, bands, -(-registers // block_registers), block_registers)


def share_planes(machine: Machine, planes: int, lines: int, cycles: float) -> tuple[PlaneShares, int]:
    """Whole planes if they are enough, else bands of their lines; and the number of items."""
    each, groups = share_rows(machine, planes, cycles)
    band_lines, bands = share_rows(machine, lines, cycles) if groups < machine.threads else (lines, 1)
    return PlaneShares(planes, each, band_lines, bands), groups * bands


def share_rows(machine: Machine, rows: int, cycles: float) -> tuple[int, int]:
    """The rows of an item, and the number of items."""
    each = -(-rows // min(rows, item_count(machine, cycles)))
    return each, -(-rows // each)
