"""Times of engines that keep their threads spinning after a call: long blocks in random order.

The threads of libgomp, onnxruntime and OpenVINO go on for milliseconds, at the expense of whatever comes
next. A block is long enough for that to end, and its first half is not counted.
"""

import random
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from bslite.cli.timing import seconds_of

SECONDS = 0.15  # that a block lasts at least
LEAST = 2  # calls in a block

Taken = TypeVar("Taken")


def in_blocks(
    rivals: Mapping[str, Callable[[], object]], rounds: int = 7, seconds: float = SECONDS, seed: int = 0
) -> dict[str, list[float]]:
    """Seconds per call of each rival, one figure per round: the median of the later half of a block."""
    order = random.Random(seed)
    found: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(rounds):
        for name in order.sample(list(rivals), len(rivals)):
            found[name].append(statistics.median(later_half(partial(seconds_of, rivals[name]), seconds)))
    return found


def later_half(measured: Callable[[], Taken], seconds: float) -> list[Taken]:
    """What ``measured`` gave in the later half of a block."""
    taken: list[Taken] = []
    end = time.perf_counter() + seconds
    while len(taken) < LEAST or time.perf_counter() < end:
        taken.append(measured())
    return taken[len(taken) // 2 :]
