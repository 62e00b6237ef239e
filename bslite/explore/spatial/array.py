"""The array of dot products: PCUs in rows, a hub in the middle; what it takes of the grid, its latencies."""

from dataclasses import dataclass
from functools import cached_property

from bslite.explore.spatial import grid
from bslite.explore.spatial.machine import SpatialMachine

WORD = 4  # bytes


def ceil(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def channel_cycles(count: int, bytes_per_cycle: float) -> int:
    """Whole cycles that so many bytes take of the channel to memory."""
    return int(-(-count // bytes_per_cycle))


@dataclass(frozen=True)
class DotArray:
    """``rows`` dot products side by side, each over ``split`` PCUs, each of which takes ``width`` elements at
    a time.

    The vector that all rows are multiplied with lies in ``split`` PMUs of the hub, one per PCU of a row, and
    is sent to all rows at once. The sums come back to the hub, where collectors add up the ``split`` parts of
    a row: ``lanes`` rows at a time, a part per cycle.
    """

    machine: SpatialMachine
    rows: int
    split: int
    width: int
    collectors: int
    hub_pcus: int  # all compute units in the hub, collectors included
    hub_pmus: int

    @property
    def pcus(self) -> int:
        """PCUs that multiply."""
        return self.rows * self.split

    @property
    def chunk(self) -> int:
        """Elements of the vector that are taken at a time."""
        return self.split * self.width

    @cached_property
    def hub_cells(self) -> int:
        """Cells of the hub: as many as its PCUs or its PMUs need."""
        return max(1, self.hub_pcus, ceil(self.hub_pmus, self.machine.pmus_per_pcu))

    @cached_property
    def cells(self) -> int:
        """All cells taken; at most ``machine.pcus`` fit."""
        return self.hub_cells + self.pcus

    @cached_property
    def reach(self) -> int:
        """Cycles between the hub and the farthest PCU."""
        return grid.reach(self.machine, self.hub_cells, min(self.cells, self.machine.pcus))

    @property
    def interval(self) -> int:
        """Cycles from one chunk to the next: the banks of a PMU deliver a word each per cycle."""
        return ceil(self.width, self.machine.banks)

    @property
    def levels(self) -> int:
        """Levels of the reduction tree."""
        return self.width.bit_length() - 1

    @property
    def link(self) -> int:
        """Cycles from a chunk's read to the multipliers: the read, the way."""
        return self.interval + self.reach

    @property
    def depth(self) -> int:
        """Cycles from a row's last chunk being read to its sums arriving in the hub."""
        return self.link + self.levels + 1 + self.reach

    def collecting(self, vectors: int) -> int:
        """Cycles from the sums' arrival until ``vectors`` vectors of rows are added up and written."""
        return ceil(vectors, self.collectors) * self.split + 1

    def misfit(self) -> str | None:
        """Why it does not fit the grid, or None."""
        m = self.machine
        if self.cells > m.pcus:
            return (
                f"{self.rows} rows of {self.split} PCUs and {self.hub_cells} cells of the hub are "
                f"{self.cells} cells, the grid has {m.pcus}"
            )
        return None
