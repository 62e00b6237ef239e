"""Settings: images of a request, runs at once, threads of each; and all that a number of cores has."""

from collections.abc import Sequence
from dataclasses import dataclass

BATCHES = (1, 4, 16)
TARGETS = ("latency", "throughput")


@dataclass(frozen=True, order=True)
class Setting:
    """Requests of ``batch`` images, ``streams`` of them at a time, ``threads`` for each."""

    batch: int
    streams: int
    threads: int

    @property
    def used(self) -> int:
        """Threads of all streams."""
        return self.streams * self.threads

    def __str__(self) -> str:
        return f"batch {self.batch}, {self.streams} x {self.threads}"


def teams(cores: int) -> list[int]:
    """Numbers of threads that some number of teams divides the cores into, ascending: 1, ..., ``cores``."""
    return sorted({cores // teams for teams in range(1, cores + 1)})


def space(target: str, cores: int, batches: Sequence[int]) -> list[Setting]:
    """All settings of ``cores`` cores: for latency one request of one image at a time.

    For throughput the streams are as many as fit, and powers of two below, which leave cores idle.
    """
    if target == "latency":
        return [Setting(min(batches), 1, t) for t in teams(cores)]
    found = []
    for t in teams(cores):
        most = cores // t
        fewer = [2**i for i in range(most.bit_length()) if 2**i < most]
        found += [Setting(b, p, t) for p in (*fewer, most) for b in batches]
    return found


def few_threads(target: str, cores: int, pools: int) -> list[int]:
    """The numbers of threads that the tuner looks at. For latency all ways to divide the
    cores, whose plans run quickly; for throughput 1, 2, 4, half, all, and what the width says.
    """
    if target == "latency":
        return teams(cores)
    wanted = {1, 2, 4, max(1, cores // 2), max(1, cores // pools), cores}
    return sorted(t for t in wanted if t <= cores)
