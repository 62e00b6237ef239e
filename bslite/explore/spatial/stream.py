"""Weights as the array finds them: in its memories, or brought from outside, block by block, two ahead."""

from collections.abc import Sequence

from bslite.explore.spatial.array import WORD
from bslite.explore.spatial.cells import Array
from bslite.explore.spatial.units import Dram, Key


def spread(blocks: int, streamed: int) -> tuple[int, ...]:
    """Which ``streamed`` blocks come from outside: spread evenly, to keep the channel busy."""
    return tuple(b for b in range(blocks) if (b + 1) * streamed // blocks > b * streamed // blocks)


def step_cycles(
    work: float, gaps: Sequence[float], blocks: int, streamed: int, tile: float, latency: int
) -> float:
    """Cycles of a step whose ``blocks`` take ``work`` cycles to multiply, and in whose ``gaps`` the array
    waits for other things.

    A block of ``tile`` cycles on the channel is asked for when the one before last is done with: so one
    takes at least half of its own work, its transfer and the latency. In a gap two can come ahead.
    """
    if not streamed:
        return work + sum(gaps)
    apart = work / streamed
    each = max(apart, tile, (latency + tile + work / blocks) / 2)
    uncovered = sum(max(0.0, gap - 2 * (each - apart)) for gap in gaps)
    return max(work + sum(gaps), streamed * each + uncovered)


class WeightStream:
    """Blocks of a step in order; those of ``streamed`` come from outside at every step, into two places in
    turn, the others stay on chip.

    A place is free again when its block has been multiplied for the last time of the step. ``steps`` is the
    number of steps for which blocks are brought.
    """

    def __init__(self, dram: Dram, blocks: Sequence[Array], streamed: Sequence[int], steps: int) -> None:
        self.dram, self.outside, self.streamed, self.steps = dram, blocks, streamed, steps
        self.on_chip = {b: blocks[b] for b in set(range(len(blocks))) - set(streamed)}
        self.places: dict[tuple[int, int], Array] = {}  # (step, block): what has arrived
        self.next = 0  # streamed block to be asked for, counted over all steps
        for _ in range(2 if streamed else 0):
            self._request()

    def _request(self) -> None:
        step, number = divmod(self.next, len(self.streamed))
        if step >= self.steps:
            return
        block = self.streamed[number]
        self.next += 1

        def arrived() -> None:
            self.places[step, block] = self.outside[block].copy()

        self.dram.request((step, "weights", block), self.outside[block].size * WORD, arrived)

    def find(self, step: int, block: int) -> Array | None:
        """The block's weights, or None if they are still on their way."""
        held = self.on_chip.get(block)
        return self.places.get((step, block)) if held is None else held

    def release(self, step: int, block: int) -> None:
        """The block is done with for this step."""
        if block not in self.on_chip:
            del self.places[step, block]
            self._request()

    def signature(self, step: int) -> Key:
        """Which blocks lie ready, and how far ahead the requests are."""
        ready = sorted((s - step, block) for s, block in self.places)
        return (*ready, self.next - step * len(self.streamed))
