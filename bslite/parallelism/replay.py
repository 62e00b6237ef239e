"""A simulator of runs on cores that are not here: it replays one-thread items on as many threads as asked.

Each simulated thread does what `bslite.kernels.cpu.runtime.walk` does: it claims items of its own share of a
step, then of the others', and before its first item of a step it waits until all steps that this one depends
on are done. Teams of threads run requests one after the other, at the same time and independently.

An item takes its one-thread time, longer where cores are shared: by memory's bandwidth, which all items that
run divide once they ask for more than there is; by more threads than cores; by a clock that falls while all
cores compute. The share is that of the moment in which the item starts. Python's part of a call holds
Python's lock. Runs of several threads that have no core for each of them take turns, as in the engine.
"""

import functools
import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bslite.parallelism.host import Host
from bslite.parallelism.price import Estimate, at_once
from bslite.parallelism.work import Work

REQUESTS = 5  # of each team, the first of which does not count
JOIN = 2e-6  # seconds until the members of a team have come


@dataclass(frozen=True)
class Replayed(Estimate):
    """``busy``: the share of the time in which a core has an item."""

    busy: float


def replay(work: Work, host: Host, streams: int, requests: int = REQUESTS) -> Replayed:
    """Simulate ``streams`` teams, each with the threads that the work is planned for."""
    teams = at_once(work, host, streams)
    if not len(work.seconds):
        seconds = max(work.call, 1e-9)
        return Replayed(seconds, work.batch / seconds, 0.0)
    items = np.diff(work.first)
    moved = np.repeat(work.bytes_per_item(teams, host.l3), items)
    own = work.seconds + work.gap
    # One core alone takes part of an item's time for its bytes: at most all of it.
    memory = np.minimum(moved / host.alone, own)
    latency, rate, busy = _compiled()(
        work.after, work.first, own, memory, work.threads, teams, max(2, requests), work.call,
        JOIN if work.threads > 1 else 0.0, host.cores, host.alone / host.memory, host.crowd,
    )  # fmt: skip
    return Replayed(float(latency) * streams / teams, float(rate) * work.batch, float(busy))


@functools.cache
def _compiled() -> Callable[..., Any]:
    import numba

    made: Callable[..., Any] = numba.njit(_replay)
    return made


def _replay(
    after: Any, first: Any, own: Any, memory: Any, shares: int, streams: int, requests: int, call: float,
    join: float, cores: int, asked: float, crowd: float,
) -> tuple[float, float, float]:  # fmt: skip
    """Mean seconds of a request, requests per second, busy share of the cores.

    ``own`` and ``memory``: seconds of each item alone, and those of them spent on memory. ``asked``: the part
    of memory's bandwidth that one core takes alone.
    """
    steps, walkers = len(after), streams * shares
    finished = np.zeros((streams, steps), np.int64)
    claimed = np.zeros((streams, steps, shares), np.int64)
    done = np.zeros(streams, np.int64)  # leading steps of a team's request that are
    at_step = np.zeros(walkers, np.int64)
    turn = np.zeros(walkers, np.int64)
    item = np.full(walkers, -1, np.int64)
    needs = np.full(walkers, -1, np.int64)  # leading steps that a thread waits for
    began = np.zeros(streams)
    ended = np.zeros(streams, np.int64)
    first_end = np.zeros(streams)
    last_end = np.zeros(streams)
    spent, counted = 0.0, 0
    working, demand, busy = 0, 0.0, 0.0
    lock, now = 0.0, 0.0
    left = streams
    apart = (own.sum() / shares + call) / streams
    events = [(0.0, 0)]
    events.clear()
    for team in range(streams):  # they do not all begin at once
        began[team] = team * apart
        start = max(began[team], lock)
        lock = start + call
        for w in range(team * shares, (team + 1) * shares):
            heapq.heappush(events, (start + call + (join if w > team * shares else 0.0), w))
    while left:
        now, w = heapq.heappop(events)
        team, slot = w // shares, w % shares
        if item[w] >= 0:
            i = item[w]
            item[w] = -1
            working -= 1
            demand -= memory[i] / own[i] * asked
            finished[team, at_step[w]] += 1
            before = done[team]
            while done[team] < steps:
                s = done[team]
                if finished[team, s] < first[s + 1] - first[s]:
                    break
                done[team] += 1
            if done[team] == steps:
                if ended[team]:
                    spent += now - began[team]
                    counted += 1
                else:
                    first_end[team] = now
                ended[team] += 1
                last_end[team] = now
                if ended[team] == requests:
                    left -= 1
                began[team] = now
                start = max(now, lock)
                lock = start + call
                finished[team, :] = 0
                claimed[team, :, :] = 0
                done[team] = 0
                for other in range(team * shares, (team + 1) * shares):
                    at_step[other], turn[other], needs[other] = 0, 0, -1
                    late = join if other > team * shares else 0.0
                    heapq.heappush(events, (start + call + late, other))
                continue
            if done[team] > before:
                for other in range(team * shares, (team + 1) * shares):
                    if 0 <= needs[other] <= done[team]:
                        needs[other] = -1
                        heapq.heappush(events, (now, other))
        s = at_step[w]
        while s < steps:
            count = first[s + 1] - first[s]
            while turn[w] < shares:
                share = (slot + turn[w]) % shares
                low, high = count * share // shares, count * (share + 1) // shares
                if low + claimed[team, s, share] < high:
                    break
                turn[w] += 1
            if turn[w] < shares:
                if done[team] < after[s]:
                    needs[w] = after[s]
                    break
                i = first[s] + low + claimed[team, s, share]
                claimed[team, s, share] += 1
                item[w] = i
                working += 1
                demand += memory[i] / own[i] * asked
                slow = max(1.0, working / cores)
                speed = 1.0 + (crowd - 1.0) * (min(working, cores) - 1) / max(1, cores - 1)
                seconds = slow * (own[i] + memory[i] * max(0.0, demand - 1.0)) / speed
                busy += seconds / slow
                heapq.heappush(events, (now + seconds, w))
                break
            s += 1
            turn[w] = 0
        at_step[w] = s
    rate = 0.0
    for team in range(streams):
        rate += (ended[team] - 1) / (last_end[team] - first_end[team])
    return spent / counted, rate, busy / (now * cores)
