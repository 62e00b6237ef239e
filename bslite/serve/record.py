"""The access log: one JSON object per request on stderr."""

import contextlib
import itertools
import json
import math
import os
import queue
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from bslite.serve.scheduler import Job

KEY = "bslite.record"  # in an ASGI scope


@dataclass
class Record:
    """What is known of a request so far. ``limit``: seconds that its client gives it, from ``start``."""

    client: str
    request: str
    start: float = field(default_factory=time.perf_counter)
    limit: float = math.inf
    model: str = ""
    id: str | None = None
    job: Job | None = None
    status: int = 0
    taken: int = 0  # bytes of the body
    given: int = 0  # bytes of the answer
    error: str = ""
    infers: bool = False

    def line(self, seconds: float) -> str:
        """One line. Everything a client said is in JSON's quotes: it cannot begin a line of its own."""
        told: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "client": self.client,
            "request": self.request,
            "status": self.status,
            "ms": round(1e3 * seconds, 3),
            "in": self.taken,
            "out": self.given,
        }
        if self.model:
            told["model"] = self.model
        if self.id:
            told["id"] = self.id[:100]
        if self.job is not None and self.job.ended:
            job = self.job
            told["queue_ms"] = round(1e3 * (job.started - job.arrived), 3)
            told["run_ms"] = round(1e3 * (job.ended - job.started), 3)
            told["rows"], told["batch"] = job.rows, job.batch
        if self.error:
            told["error"] = self.error[:500]
        return json.dumps(told)


def write(line: str) -> None:
    """To stderr; a reader that has gone away is no reason to stop serving."""
    with contextlib.suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)


class Lines:
    """Lines to a file of the system's from a thread of its own: a pipe that nobody reads is full after some
    hundred lines, and who writes to it waits. ``MOST`` lines wait here; those beyond are dropped, and a line
    says how many.
    """

    MOST = 10_000

    def __init__(self, to: int) -> None:
        self._to = to
        self._waiting: queue.Queue[str | None] = queue.Queue(self.MOST)
        self._lost = itertools.count(1)  # its next number is taken in one step, by any thread
        self._dropped = self._told = 0
        self._thread = threading.Thread(target=self._write, name="bslite-log", daemon=True)
        self._thread.start()

    def __call__(self, line: str) -> None:
        """Never waits."""
        try:
            self._waiting.put_nowait(line)
        except queue.Full:
            self._dropped = next(self._lost)

    def close(self, seconds: float = 1.0) -> None:
        """Write what waits, for so long at most."""
        end = time.monotonic() + seconds
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=seconds)
        self._thread.join(max(0.0, end - time.monotonic()))

    def _write(self) -> None:
        while (line := self._waiting.get()) is not None:
            self._all(line)
            if self._waiting.empty():
                self._tell()
        self._tell()

    def _tell(self) -> None:
        """How many lines were dropped since that was last said."""
        dropped = self._dropped
        if lost := dropped - self._told:
            self._told = dropped
            self._all(json.dumps({"error": f"{lost} lines of this log were dropped, unread"}))

    def _all(self, line: str) -> None:
        """By the system's call: who waits in Python's own holds its lock when the process ends."""
        rest = memoryview(f"{line}\n".encode(errors="backslashreplace"))
        with contextlib.suppress(OSError):
            while rest:
                try:
                    rest = rest[os.write(self._to, rest) :]
                except BlockingIOError:  # somebody else has set the terminal or the pipe so
                    select.select([], [self._to], [])


@contextlib.contextmanager
def log() -> Iterator[Callable[[str], None]]:
    """What writes lines to stderr; at the end, those that wait are written. A stderr that is no file of the
    system's is written to at once.
    """
    try:
        lines = Lines(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):
        yield write
        return
    try:
        yield lines
    finally:
        lines.close()
