"""The price of a setting: seconds of a request and requests a second, from one-thread times alone.

It follows the steps once, in order, as if all items of a step took the same time. The simulator (`replay.py`)
follows each item; it is what the price is checked against where there are not enough cores.
"""

from dataclasses import dataclass

from bslite.parallelism.host import Host
from bslite.parallelism.work import Work


@dataclass(frozen=True)
class Estimate:
    """``seconds`` of one request while others run beside it, ``rate`` of images per second of all."""

    seconds: float
    rate: float


def price(work: Work, host: Host, streams: int) -> Estimate:
    """The estimate for so many runs at once, each with the threads that the work is planned for."""
    teams = at_once(work, host, streams)
    busy = min(host.cores, teams * work.threads)
    speed = 1.0 + (host.crowd - 1.0) * (busy - 1) / max(1, host.cores - 1)
    span = _span(work) / speed
    items = work.first[1:] - work.first[:-1]
    moved = float((work.bytes_per_item(teams, host.l3) * items).sum())
    own = float(work.seconds.sum()) + work.gap * len(work.seconds)
    # Requests share cores, memory and, for what Python does of a call, its lock.
    seconds = max(
        work.call + span, teams * own / (host.cores * speed), teams * moved / host.memory, teams * work.call
    )
    return Estimate(seconds * streams / teams, teams * work.batch / seconds)


def at_once(work: Work, host: Host, streams: int) -> int:
    """How many of the runs go on at a time: those of several threads take turns where there are fewer cores
    than threads (`bslite.engines.cpu.turns`).
    """
    return streams if work.threads == 1 else min(streams, max(1, host.cores // work.threads))


def _span(work: Work) -> float:
    """Seconds from the first item of a request to its last.

    ``free`` is when a thread is free in the mean. A step begins when threads are free and what it waits for
    is done, takes as many rounds of its items as there are, and leaves the threads that have no item in the
    last round to the next step that need not wait for it.
    """
    free, done = 0.0, [0.0]  # done[n]: when the first n steps are
    for s, after in enumerate(work.after.tolist()):
        mine = work.seconds[work.first[s] : work.first[s + 1]]
        count = len(mine)
        each = float(mine.mean()) + work.gap if count else 0.0
        start = max(free, done[after])
        free = start + count * each / work.threads
        done.append(max(done[-1], start + -(-count // work.threads) * each))
    return done[-1]
