"""Options of the GPU planner, for tests and for measurements of one choice against another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """``copied_at_once``: elements of a copy, or between its first and its last, that one launch takes:
    places within it have 32 bits.

    ``sorted_updates``: so many updates are sorted by their rows, if all lines have the same; fewer are looked
    through. ``sorted_each``: elements of a thread, of those that a block sorts. ``merged_runs``: runs that
    are merged at once, by the longest for which it pays: each element looks through all the others.

    ``prologues``: every pair of layers that can be one launch is one, whatever its price. ``parts``: into
    how many parts a sum of so many terms is cut, in place of the cheapest number. ``recurrent_by_products``:
    time steps of recurrent layers are products of all sequences, or are not; by price where it is None.
    """

    copied_at_once: int = 2**31 - 1
    sorted_updates: int = 1 << 15
    sorted_each: int = 16
    merged_runs: tuple[tuple[int, int], ...] = ((64, 16), (512, 4))
    prologues: bool = False
    parts: Callable[[int], int] | None = None
    recurrent_by_products: bool | None = None


DEFAULT = Tuning()
