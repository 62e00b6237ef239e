"""Cutting a layer whose work is proportional to its size into items for the threads."""

from __future__ import annotations

from bslite.kernels.contracts.cpu.shares import Shares
from bslite.machine import Machine

ITEM_CYCLES = 2000  # an item should be worth claiming: some hundred cycles
ITEMS_PER_THREAD = 8  # enough for a late thread to be made up for
RUN = 4  # registers of channels the kernels take at once


def item_count(machine: Machine, cycles: float) -> int:
    """How many items work of ``cycles`` on one core should be cut into."""
    if machine.threads == 1:
        return 1
    return max(1, min(ITEMS_PER_THREAD * machine.threads, int(cycles / ITEM_CYCLES)))


def share_image(machine: Machine, images: int, lines: int, channels: int, cycles: float) -> Shares:
    """Whole images if they are enough, else bands of lines, and blocks of channels if lines are too few."""
    wanted = item_count(machine, cycles)
    registers = -(-channels // machine.lanes)
    band_lines = -(-lines // min(lines, -(-wanted // images)))
    bands = -(-lines // band_lines)
    runs = -(-registers // RUN)
    block_registers = RUN * -(-runs // min(runs, -(-wanted // (images * bands))))
    return Shares(band_lines, bands, -(-registers // block_registers), block_registers)


def share_rows(machine: Machine, rows: int, cycles: float) -> tuple[int, int]:
    """Rows of an item, and the number of items."""
    each = -(-rows // min(rows, item_count(machine, cycles)))
    return each, -(-rows // each)
