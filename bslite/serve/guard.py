"""What stands before every request: the key, the access log, the count of those in flight."""

import hashlib
import hmac
import time
from collections.abc import Callable, Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bslite.serve.answer import refusal
from bslite.serve.metrics import Metrics
from bslite.serve.problem import Problem
from bslite.serve.record import KEY, Record, write

PROBES = ("/v2/health/live", "/v2/health/ready", "/metrics")  # too many to log
OPEN = ("/v2/health/live", "/v2/health/ready")  # asked by what has no key: an orchestrator's probes


class Guard:
    """ASGI middleware. ``in_flight`` counts requests that have arrived and are not answered."""

    def __init__(
        self,
        app: ASGIApp,
        keys: Sequence[str],
        metrics: Metrics,
        log: bool,
        out: Callable[[str], None] = write,
    ) -> None:
        self._app, self._metrics, self._log, self._out = app, metrics, log, out
        self._keys = [_digest(key.encode()) for key in keys]
        self.in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = scope[KEY] = Record(time.perf_counter())

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
            elif message["type"] == "http.response.body":
                record.given += len(message.get("body", b""))
            await send(message)

        self.in_flight += 1
        try:
            if self._may(scope):
                await self._app(scope, receive, sending)
            else:
                wrong = Problem(
                    401, "a key is needed: Authorization: Bearer KEY", {"WWW-Authenticate": "Bearer"}
                )
                record.error = wrong.message
                await refusal(wrong)(scope, receive, sending)
        finally:
            self.in_flight -= 1
            seconds = time.perf_counter() - record.start
            if record.infers:
                self._metrics.answered(record.model, record.status, seconds)
            if self._log and scope["path"] not in PROBES:
                self._out(record.line(dict(scope), seconds))

    def _may(self, scope: Scope) -> bool:
        if not self._keys or scope["path"] in OPEN:
            return True
        headers = dict(scope["headers"])
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer":
            given = headers.get(b"x-api-key", b"")
        digest = _digest(given.strip())
        # All keys are compared, in a time that says nothing of where they differ.
        return sum(hmac.compare_digest(digest, key) for key in self._keys) > 0


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
