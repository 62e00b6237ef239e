"""Options of the GPU planner, for tests and for measurements of one choice against another."""

from collections.abc import Callable
from dataclasses import dataclass

from bslite.arithmetic import Precision


@dataclass(frozen=True)
class Tuning:
    """Thresholds and choices of the GPU planner that tests and measurements may override.

    ``copied_at_once`` is the most elements that one copy launch takes or spans between its first and its
    last: places within it have 32 bits.

    From ``sorted_updates`` updates on, updates are sorted by their rows if all lines have the same; fewer are
    looked through. ``sorted_each`` is a thread's elements when a block sorts. ``merged_runs`` is how many
    runs are merged at once, the most for which it pays: each element looks through all the others.

    ``prologues`` makes every possible pair of layers one launch, whatever its price. ``parts`` cuts a sum of
    so many terms into that many parts, in place of the cheapest number. ``precision`` is the least accuracy
    of products, None what the engine's caller says, else float32. ``recurrent_by_products`` sets whether time
    steps of recurrent layers are products of all sequences; None decides by price.
    """

    copied_at_once: int = 2**31 - 1
    sorted_updates: int = 1 << 15
    sorted_each: int = 16
    merged_runs: tuple[tuple[int, int], ...] = ((64, 16), (512, 4))
    prologues: bool = False
    parts: Callable[[int], int] | None = None
    recurrent_by_products: bool | None = None
    precision: Precision | None = None


DEFAULT = Tuning()
