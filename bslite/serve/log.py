"""The log on stderr: who writes a line never waits for who reads it."""

import contextlib
import json
import os
import queue
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator


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
        self._lock = threading.Lock()
        self._dropped = 0
        self._thread = threading.Thread(target=self._write, name="bslite-log", daemon=True)
        self._thread.start()

    def __call__(self, line: str) -> None:
        """Never waits."""
        try:
            self._waiting.put_nowait(line)
        except queue.Full:
            with self._lock:
                self._dropped += 1

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
        with self._lock:
            dropped, self._dropped = self._dropped, 0
        if dropped:
            self._all(json.dumps({"error": f"{dropped} lines of this log were dropped, unread"}))

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
