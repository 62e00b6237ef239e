"""A connection of uvicorn's with a bound on how long a client may take, and errors in the protocol's form."""

import asyncio
import json
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

SPARE = 1.0  # seconds beyond the limit, in which the application refuses a slow body itself


class Connection(H11Protocol):
    """Closes itself if a request does not arrive, or an answer is not taken, within ``limit`` seconds; and at
    once where there are more than ``most`` connections.
    """

    limit = 10.0
    most = 1024

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._arriving: asyncio.TimerHandle | None = None
        self._leaving: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            self._refuse(503, "there are too many connections; try again later")
        else:
            self._arriving = self.loop.call_later(self.limit + SPARE, self._late)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._arriving is None:
            self._arriving = self.loop.call_later(self.limit + SPARE, self._late)
        before = self.conn.their_state
        super().data_received(data)
        if before is h11.IDLE and self.conn.their_state is h11.SEND_BODY:  # the body has a time of its own
            self._arrived()
            self._arriving = self.loop.call_later(self.limit + SPARE, self._late)
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY) or self._at_rest():
            self._arrived()

    def _at_rest(self) -> bool:
        """Between two requests, where uvicorn's own limit holds."""
        return self.timeout_keep_alive_task is not None

    def _arrived(self) -> None:
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None

    def _late(self) -> None:
        self._arriving = None
        if self.conn.their_state is h11.IDLE and self.conn.our_state is h11.IDLE:
            self._refuse(408, f"the request did not arrive within {self.limit:g} s")
        else:
            self.transport.abort()

    def _refuse(self, status: int, message: str) -> None:
        body = json.dumps({"error": message}).encode()
        phrase = {400: "Bad Request", 408: "Request Timeout", 503: "Service Unavailable"}[status]
        head = (
            f"HTTP/1.1 {status} {phrase}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        )
        more = "retry-after: 1\r\n" if status == 503 else ""
        self.transport.write((head + more + "connection: close\r\n\r\n").encode() + body)
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        self._arrived()
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
        self._arrived()
        self._left()
        super().connection_lost(exc)


def bounded(limit: float, most: int) -> type[Connection]:
    """The class with these limits, as uvicorn makes its connections itself."""
    return type("BoundedConnection", (Connection,), {"limit": limit, "most": most})
