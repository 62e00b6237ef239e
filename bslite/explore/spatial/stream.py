"""Weights as the array finds them: in its memories, or brought from outside, block by block, two places
ahead.
"""

from __future__ import annotations

from collections.abc import Sequence

from bslite.explore.spatial.array import WORD
from bslite.explore.spatial.cells import Array
from bslite.explore.spatial.units import Dram, Key


class WeightStream:
    """Blocks 0 to ``resident`` - 1 stay on chip; the others come at every step, in order, into two places in
    turn.

    A place is free again when its block has been multiplied for the last time of the step. ``steps`` is the
    number of steps for which blocks are brought.
    """

    def __init__(self, dram: Dram, blocks: Sequence[Array], resident: int, steps: int) -> None:
        self.dram, self.outside, self.resident, self.steps = dram, blocks, resident, steps
        self.on_chip = blocks[:resident]
        self.streamed = len(blocks) - resident
        self.places: dict[tuple[int, int], Array] = {}  # (step, block): what has arrived
        self.next = 0  # block to be asked for, counted over all steps
        for _ in range(2 if self.streamed else 0):
            self._request()

    def _request(self) -> None:
        step, number = divmod(self.next, self.streamed)
        if step >= self.steps:
            return
        block = self.resident + number
        self.next += 1

        def arrived() -> None:
            self.places[step, block] = self.outside[block].copy()

        self.dram.request((step, "weights", block), self.outside[block].size * WORD, arrived)

    def find(self, step: int, block: int) -> Array | None:
        """The block's weights, or None if they are still on their way."""
        return self.on_chip[block] if block < self.resident else self.places.get((step, block))

    def release(self, step: int, block: int) -> None:
        """The block is done with for this step."""
        if block >= self.resident:
            del self.places[step, block]
            self._request()

    def signature(self, step: int) -> Key:
        """Which blocks lie ready, and how far ahead the requests are."""
        return (*sorted((s - step, block) for s, block in self.places), self.next - step * self.streamed)
