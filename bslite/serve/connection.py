"""A connection of uvicorn's with bounds on what a client may send, and how slowly; errors in the protocol's
form.
"""

import asyncio
import enum
import json
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

SPARE = 1.0  # seconds beyond the limit, in which the application refuses a slow body itself
HEAD = 32 << 10  # bytes of a request's head at most


class Phase(enum.Enum):
    """What is next to come from the client."""

    request, head, body = range(3)


class Connection(HttpToolsProtocol):
    """Closes itself if a request does not arrive, or an answer is not taken, within ``limit`` seconds; and at
    once where there are more than ``most`` connections, or where a head has no end.
    """

    limit = 10.0
    most = 1024

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._arriving: asyncio.TimerHandle | None = None
        self._leaving: asyncio.TimerHandle | None = None
        self._phase, self._head = Phase.request, 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            self._refuse(503, "there are too many connections; try again later")
        else:
            self._enter(Phase.request, wait=True)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._head += len(data)
        super().data_received(data)
        if self._phase is Phase.head and self._head > HEAD:
            self._refuse(431, f"the head of a request has at most {HEAD} bytes")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._enter(Phase.head, wait=True)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._enter(Phase.body, wait=True)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._head = 0
        self._enter(Phase.request, wait=False)

    def _enter(self, phase: Phase, wait: bool) -> None:
        self._phase = phase
        if self._arriving is not None:
            self._arriving.cancel()
        self._arriving = self.loop.call_later(self.limit + SPARE, self._late) if wait else None

    def _late(self) -> None:
        self._arriving = None
        at_rest = self.cycle is None or self.cycle.response_complete
        if self._phase is not Phase.body and at_rest:
            self._refuse(408, f"the request did not arrive within {self.limit:g} s")
        else:
            self.transport.abort()

    def _refuse(self, status: int, message: str) -> None:
        body = json.dumps({"error": message}).encode()
        lines = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            "content-type: application/json",
            f"content-length: {len(body)}",
            *(["retry-after: 1"] if status == 503 else []),
            "connection: close",
        ]
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + body)
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, msg)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._leaving = self.loop.call_later(self.limit, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._left()

    def _left(self) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._enter(Phase.request, wait=False)
        self._left()
        super().connection_lost(exc)


def bounded(limit: float, most: int) -> type[Connection]:
    """The class with these limits, as uvicorn makes its connections itself."""
    return type("BoundedConnection", (Connection,), {"limit": limit, "most": most})
