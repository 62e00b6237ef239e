"""What every request passes, whichever way it comes: the key, the log, the count of those in flight."""

import hashlib
import hmac
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from bslite.serve.log import write
from bslite.serve.metrics import Metrics
from bslite.serve.problem import Problem
from bslite.serve.record import Record


class Gate:
    """``in_flight`` counts requests that have arrived and are not answered."""

    def __init__(
        self, keys: Sequence[str], metrics: Metrics, log: bool, out: Callable[[str], None] = write
    ) -> None:
        self._metrics, self._log, self._out = metrics, log, out
        self._keys = [_digest(key.encode()) for key in keys]
        self.in_flight = 0

    @contextmanager
    def passing(self, record: Record, logged: bool = True) -> Iterator[None]:
        """A request is in flight inside the block; at its end the log and the metrics have what ``record``
        then holds.
        """
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1
            seconds = time.perf_counter() - record.start
            if record.infers:
                self._metrics.answered(record.model, record.status, seconds)
            if self._log and logged:
                self._out(record.line(seconds))

    def check_key(self, authorization: bytes, x_api_key: bytes) -> None:
        """Problem 401 if a key is needed and neither header, empty where it is not sent, has one."""
        if not self._keys:
            return
        scheme, _, given = authorization.partition(b" ")
        digest = _digest((given if scheme.lower() == b"bearer" else x_api_key).strip())
        # All keys are compared, in a time that says nothing of where they differ.
        if not sum(hmac.compare_digest(digest, key) for key in self._keys):
            raise Problem(401, "a key is needed: Authorization: Bearer KEY", {"WWW-Authenticate": "Bearer"})


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
