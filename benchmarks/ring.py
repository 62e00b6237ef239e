"""A step of data-parallel training, modelled: gradients are summed bucket by bucket, in a ring of processes.

Each of n processes sends 2 (n - 1) messages of the n-th part of a bucket (Patarasuk and Yuan, Bandwidth
optimal all-reduce algorithms for clusters of workstations, 2009).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Link:
    """Between two processes: seconds that a message takes, and a byte of it; cores that each keeps
    busy meanwhile.
    """

    latency: float
    per_byte: float
    busy: float = 0.0

    def exchange(self, size: float, processes: int) -> float:
        """Seconds until ``size`` bytes are summed over all processes."""
        return 2 * (processes - 1) * (self.latency + self.per_byte * size / processes)


@dataclass(frozen=True)
class Bucket:
    """Gradients that are exchanged at once: seconds after which a step has made them, and their bytes."""

    ready: float
    size: int


def step(buckets: Sequence[Bucket], end: float, processes: int, link: Link, cores: float = math.inf) -> float:
    """Seconds of a step that takes ``end`` without exchange. ``buckets`` are in the order of their making.

    One bucket is exchanged after the other, beside what a process computes. Computing takes a core of each
    process, and exchanging ``link.busy``; where all that is more than ``cores``, everything slows down alike.
    """
    waiting = [Bucket(min(b.ready, end), b.size) for b in buckets]
    under_way: list[float] = []  # seconds left of the exchange at hand, and those that wait for it
    now = done = 0.0  # by the clock; of a process's own computing
    while done < end or under_way or waiting:
        while waiting and waiting[0].ready <= done:
            under_way.append(link.exchange(waiting.pop(0).size, processes))
        demand = (done < end) + (link.busy if under_way else 0.0)
        slower = max(1.0, processes * demand / cores)
        until = waiting[0].ready if waiting else end
        passes = min([until - done] * (done < end) + under_way[:1])
        now += passes * slower
        done = until if done < end and passes == until - done else done + passes * (done < end)
        if under_way:
            under_way[0] -= passes
            under_way = under_way[not under_way[0] :]
    return now
