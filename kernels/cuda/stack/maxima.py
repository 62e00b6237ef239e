"""Maxima of overlapping windows, with the parts that windows share computed once."""

from collections.abc import Sequence

Span = tuple[int, int]  # [start, stop) of a line of values


def shared_blocks(windows: Sequence[Span]) -> tuple[list[Span], list[list[Span]]]:
    """Return the blocks of several values whose maxima are computed, halves first, and the parts of each
    window: blocks and single values.

    Windows are cut into blocks of 1, 2, 4, ... values whose places are multiples of their size, counted from
    some shift; the shift with the fewest maxima is taken.
    """
    best: tuple[dict[Span, None], list[list[Span]]] | None = None
    least = 0
    for shift in range(8):
        blocks: dict[Span, None] = {}
        parts = [_parts(start, stop, shift, blocks) for start, stop in windows]
        cost = len(blocks) + sum(len(p) - 1 for p in parts)
        if best is None or cost < least:
            best, least = (blocks, parts), cost
    assert best is not None
    return sorted(best[0], key=lambda b: b[1] - b[0]), best[1]


def _parts(start: int, stop: int, shift: int, blocks: dict[Span, None]) -> list[Span]:
    """Return ``[start, stop)`` as few aligned blocks; add those of several values, and their halves, to
    ``blocks``.
    """
    parts = []
    while start < stop:
        size = 1
        while (start + shift) % (2 * size) == 0 and start + 2 * size <= stop:
            size *= 2
        parts.append((start, start + size))
        waiting = [(start, start + size)]
        while waiting:
            a, z = waiting.pop()
            if z - a > 1:
                blocks[a, z] = None
                waiting += [(a, (a + z) // 2), ((a + z) // 2, z)]
        start += size
    return parts
