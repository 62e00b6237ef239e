"""The queue in front of the engine: which requests run, when, and which of them together."""

import asyncio
import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

from bslite.serve.model import Served
from bslite.serve.problem import Problem
from bslite.serve.settings import Settings

SMOOTH = 0.2  # how much of the estimated gap between requests the last gap makes


@dataclass(eq=False)
class Job:
    """A request in the queue, then what became of it. Times are those of `time.perf_counter`."""

    model: Served
    arrays: Sequence[Any]
    future: "asyncio.Future[dict[str, Any]]"
    kind: tuple[Any, ...] | None
    rows: int
    arrived: float
    started: float = 0.0
    ended: float = 0.0
    batch: int = 0  # rows that ran together with its own, those included


@dataclass
class _Line:
    """What waits for one model, the oldest first."""

    jobs: deque[Job] = field(default_factory=deque)
    waiting: int = 0  # of the jobs, without those that were given up
    gap: float = math.inf  # seconds between arrivals, smoothed
    last: float = -math.inf


class Scheduler:
    """Takes jobs on an event loop and runs them on ``pool``, at most ``settings.streams`` runs at a time.

    The oldest job runs next, with others of its kind behind it, as many as the model's `Price` says. Nothing
    here is called from another thread but the runs themselves.
    """

    def __init__(self, settings: Settings, pool: Executor, ran: Callable[[Sequence[Job]], None]) -> None:
        self.settings, self._pool, self._ran = settings, pool, ran
        self._lines: dict[str, _Line] = {}
        self._free = settings.streams
        self._alarm: asyncio.TimerHandle | None = None
        self._runs: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """Jobs that have not begun."""
        return sum(line.waiting for line in self._lines.values())

    def depth(self, name: str) -> int:
        """Jobs of one model that have not begun."""
        return self._lines[name].waiting if name in self._lines else 0

    def check_room(self) -> None:
        """Problem 429 if the queue is full; it says when it may have room."""
        if self.waiting < self.settings.max_queue:
            return
        seconds = sum(job.model.price.of(job.rows) for line in self._lines.values() for job in line.jobs)
        raise Problem(
            429,
            f"{self.settings.max_queue} requests wait already; try again later",
            {"Retry-After": str(max(1, math.ceil(seconds / self.settings.streams)))},
        )

    def submit(self, model: Served, arrays: Sequence[Any]) -> Job:
        """Put a request in the queue. Its results, or what its run raised, are the job's ``future``.
        Problem 429 if the queue is full.
        """
        self.check_room()
        now = time.perf_counter()
        rows = arrays[0].shape[0] if arrays and arrays[0].shape else 1
        future = asyncio.get_running_loop().create_future()
        job = Job(model, arrays, future, model.kind(arrays), rows, now)
        line = self._lines.setdefault(model.name, _Line())
        gap = now - line.last
        line.gap = gap if math.isinf(line.gap) else line.gap + SMOOTH * (gap - line.gap)
        line.last = now
        line.jobs.append(job)
        line.waiting += 1
        self._turn()
        return job

    def give_up(self, job: Job) -> None:
        """Nobody wants the answer: the job does not run if it has not begun."""
        if not job.future.done():
            job.future.cancel()
            self._lines[job.model.name].waiting -= not job.started

    def _turn(self) -> None:
        """Start what can start; set the alarm for what waits for company."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        alarms = []
        for line in self._lines.values():
            while line.jobs and line.jobs[0].future.done():
                line.jobs.popleft()
        for line in sorted((x for x in self._lines.values() if x.jobs), key=lambda x: x.jobs[0].arrived):
            while self._free and line.jobs:
                batch, until = self._pick(line)
                if until is not None:
                    alarms.append(until)
                    break
                self._start(line, batch)
        if alarms and self._free:
            wait = max(0.0, min(alarms) - time.perf_counter())
            self._alarm = asyncio.get_running_loop().call_later(wait, self._turn)

    def _pick(self, line: _Line) -> tuple[list[Job], float | None]:
        """The jobs to run now; or the time until which to wait for more."""
        first = line.jobs[0]
        if first.kind is None:
            return [first], None
        alike = [job for job in line.jobs if job.kind == first.kind and not job.future.done()]
        waiting = sum(job.rows for job in alike)
        price = first.model.price
        until = self._until(line, first, waiting)
        if until is not None and until > time.perf_counter():
            return [], until
        left = price.rows(min(waiting, self.settings.max_batch))
        batch = [first, *_fitting(itertools.islice(alike, 1, None), left - first.rows)]
        return batch, None

    def _until(self, line: _Line, first: Job, waiting: int) -> float | None:
        """When to stop waiting for another request; None where there is no reason to wait.

        With another stream free the next request need not wait for this one.
        """
        if self._free > 1 or not self.settings.max_delay:
            return None
        patience = first.model.price.patience(waiting)
        if line.gap >= patience:
            return None
        # A gap that has lasted longer than the estimate is the better estimate.
        return min(first.arrived + self.settings.max_delay, line.last + patience)

    def _start(self, line: _Line, batch: list[Job]) -> None:
        rows, now = sum(job.rows for job in batch), time.perf_counter()
        for job in batch:
            job.started, job.batch = now, rows
        chosen = set(map(id, batch))
        line.jobs = deque(job for job in line.jobs if id(job) not in chosen and not job.future.done())
        line.waiting -= len(batch)
        self._free -= 1
        task = asyncio.get_running_loop().create_task(self._run(batch))
        self._runs.add(task)
        task.add_done_callback(self._runs.discard)

    async def _run(self, batch: list[Job]) -> None:
        try:
            made = await asyncio.get_running_loop().run_in_executor(self._pool, _compute, batch)
        except BaseException as e:  # the pool is gone, or the loop is being stopped
            made = [e] * len(batch)
        finally:
            self._free += 1
        for job, result in zip(batch, made, strict=True):
            job.ended = time.perf_counter()
            if job.future.done():
                continue
            if isinstance(result, dict):
                job.future.set_result(result)
            else:
                job.future.set_exception(result)
        self._ran(batch)
        self._turn()


def _fitting(jobs: Any, left: int) -> list[Job]:
    """Jobs in order while they fit into so many rows."""
    made = []
    for job in jobs:
        if job.rows > left:
            break
        left -= job.rows
        made.append(job)
    return made


def _compute(batch: list[Job]) -> list[Any]:
    """Results, or an exception, of each job. Where a batch fails, each job is tried alone: a mistake in one
    of the requests is that one's alone.
    """
    model = batch[0].model
    try:
        return list(model.run_together([job.arrays for job in batch]))
    except Exception as e:
        if len(batch) == 1:
            return [e]
    made: list[Any] = []
    for job in batch:
        job.batch = job.rows
        try:
            made.append(model.run(job.arrays))
        except Exception as e:
            made.append(e)
    return made
