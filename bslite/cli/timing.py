"""Fair timing of rivals in one process: they take turns, and each is judged by its median over the rounds.

Absolute times on a shared machine wander; what holds still is the ratio of two that ran in turns.
"""

import statistics
import time
from collections.abc import Callable, Mapping

#: Pause before a rival's turn, in seconds: thread pools of the one before go on spinning for a while.
SETTLE = 0.03


def interleaved(
    rivals: Mapping[str, Callable[[], object]],
    rounds: int = 10,
    per_turn: int = 3,
    on_turn: Callable[[str], None] = lambda name: None,
    turned: bool = False,
    settle: float | None = None,
) -> dict[str, list[float]]:
    """Seconds per call of each rival, one figure per round: the median of ``per_turn`` calls.

    The first call of a turn is thrown away: it finds the caches full of someone else's data. ``turned``:
    every round begins with another rival, and every second goes the other way round, so that none always
    comes after the same one. ``settle``: seconds of pause before a turn, `SETTLE` if not given.
    """
    seconds: dict[str, list[float]] = {name: [] for name in rivals}
    for number in range(rounds):
        for name in _order(list(rivals), number if turned else 0):
            time.sleep(SETTLE if settle is None else settle)
            rivals[name]()
            seconds[name].append(statistics.median(seconds_of(rivals[name]) for _ in range(per_turn)))
            on_turn(name)
    return seconds


def _order(names: list[str], number: int) -> list[str]:
    first = number % max(1, len(names))
    order = names[first:] + names[:first]
    return order[::-1] if number % 2 else order


def medians(seconds: Mapping[str, list[float]]) -> dict[str, float]:
    """Each rival's median over the rounds."""
    return {name: statistics.median(each) for name, each in seconds.items()}


def seconds_of(call: Callable[[], object]) -> float:
    """One call, by the clock on the wall."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
