"""Streams: the runs of one compiled model that go on side by side, each on a part of the cores."""

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import TypeVar

Made = TypeVar("Made")
Given = TypeVar("Given")


class Streams:
    """At most ``count`` runs at a time, whoever calls; and as many threads for runs that nobody waits for.

    ``places``: the cores that each of these threads is bound to. Then all runs are on them.
    """

    def __init__(self, count: int, places: Sequence[frozenset[int]] = ()) -> None:
        self.count, self._places = count, places
        self._lock = threading.Lock()
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        self._turns: SimpleQueue[None] = SimpleQueue()  # one entry for each run that may begin
        for _ in range(self.count):
            self._turns.put(None)
        self._unbound: SimpleQueue[frozenset[int]] = SimpleQueue()
        for cores in self._places:
            self._unbound.put(cores)
        self._threads: ThreadPoolExecutor | None = None

    def run(self, work: Callable[[], Made]) -> Made:
        """What ``work`` returns, when it is its turn; on a thread of a stream if these are bound."""
        return self.submit(work).result() if self._places else self._in_turn(work)

    def submit(self, work: Callable[[], Made]) -> "Future[Made]":
        """Let a thread of a stream do it, after what was submitted before."""
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self.count, "bslite-stream", self._bind)
            return self._threads.submit(self._in_turn, work)

    def map(self, work: Callable[[Given], Made], given: Iterable[Given]) -> Iterator[Made]:
        """What ``work`` makes of each, in order. Takes no more of ``given`` than keeps streams busy."""
        ahead: deque[Future[Made]] = deque()
        try:
            for x in given:
                if len(ahead) > self.count:
                    yield ahead.popleft().result()
                ahead.append(self.submit(lambda x=x: work(x)))  # type: ignore[misc]
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()

    def close(self) -> None:
        """Wait for what was submitted, and let the threads go."""
        with self._lock:
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown()

    def _in_turn(self, work: Callable[[], Made]) -> Made:
        turns = self._turns
        turns.get()
        try:
            return work()
        finally:
            turns.put(None)

    def _bind(self) -> None:
        if self._places:
            from bslite.engines.cpu.places import bind

            bind(self._unbound.get())


_all: "weakref.WeakSet[Streams]" = weakref.WeakSet()


def _renew() -> None:
    """In a forked child there are no threads, and runs under way in the parent do not end."""
    for streams in list(_all):
        streams._lock = threading.Lock()
        streams._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
