"""Where things lie on the grid, and so how far apart: a hub in the middle, the dot products around it."""

from functools import lru_cache

from bslite.explore.spatial.machine import SpatialMachine


@lru_cache(maxsize=64)
def cells(rows: int, columns: int) -> tuple[tuple[int, int], ...]:
    """All cells, the nearest to the middle first (Manhattan distance; then by row and column)."""
    middle = (rows // 2, columns // 2)
    every = [(r, c) for r in range(rows) for c in range(columns)]
    return tuple(sorted(every, key=lambda cell: (abs(cell[0] - middle[0]) + abs(cell[1] - middle[1]), cell)))


@lru_cache(maxsize=4096)
def _farthest(rows: int, columns: int, hub: int, used: int) -> int:
    """Hops from any of the ``hub`` first cells to any of the ``used`` first."""
    placed = cells(rows, columns)[:used]

    def span(values: list[int]) -> tuple[int, int]:
        return min(values), max(values)

    # |dr| + |dc| is the larger of |d(r + c)| and |d(r - c)|, so four extremes of each set are enough.
    most = 0
    for turn in (1, -1):
        low, high = span([r + turn * c for r, c in placed[:hub]])
        lowest, highest = span([r + turn * c for r, c in placed])
        most = max(most, high - lowest, highest - low)
    return most


def reach(machine: SpatialMachine, hub: int, used: int) -> int:
    """Cycles from the hub's ``hub`` cells to the farthest of ``used`` cells, or back.

    A static network is balanced: what must arrive together is delayed to the slowest, so this one figure is
    the latency of every transfer between hub and array.
    """
    return machine.hop_cycles * max(1, _farthest(machine.rows, machine.columns, hub, used))
