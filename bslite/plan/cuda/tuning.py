"""Options of the GPU planner, for tests and for measurements of one choice against another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """``prologues``: every pair of layers that can be one launch is one, whatever its price. ``parts``: into
    how many parts a sum of so many terms is cut, in place of the cheapest number. ``recurrent_by_products``:
    time steps of recurrent layers are products of all sequences, or are not; by price where it is None.
    """

    prologues: bool = False
    parts: Callable[[int], int] | None = None
    recurrent_by_products: bool | None = None


DEFAULT = Tuning()
