"""The body of a request: read within a size, a time and a share of memory."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import ClientDisconnect, Request

from bslite.serve.problem import GONE, Problem
from bslite.serve.settings import Settings

#: Up to so many times the limit the rest of a body that is too large is passed over, so that the client hears
#: why; beyond that the connection is closed.
PASSED_OVER = 4


class Bodies:
    """Counts the bytes that all requests together hold."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.held = 0

    @contextmanager
    def share(self) -> Iterator["Share"]:
        """One request's bytes, given back when it is answered."""
        share = Share(self, self._settings)
        try:
            yield share
        finally:
            self.held -= share.taken


class Share:
    """The bytes of one request."""

    def __init__(self, bodies: Bodies, settings: Settings) -> None:
        self._bodies, self._settings = bodies, settings
        self.taken = 0

    async def read(self, request: Request) -> bytearray:
        """The body. Problem 413, 415, 429 or 408 if it is not one that is taken, 499 if it does not end."""
        limit = self._settings.max_body
        if (coding := request.headers.get("content-encoding", "identity").lower()) != "identity":
            raise Problem(415, f"Content-Encoding {coding[:40]!r} is not supported; send the body as it is")
        length = request.headers.get("content-length", "")
        if length.isascii() and length.isdigit() and (len(length) > 18 or int(length) > limit):
            close = len(length) > 18 or int(length) > PASSED_OVER * limit
            raise Problem(
                413,
                f"the body has {length[:20]} bytes; at most {limit} are taken",
                {"Connection": "close"} if close else None,
            )
        try:
            return await asyncio.wait_for(self._read(request), self._settings.read_timeout)
        except asyncio.TimeoutError:
            raise Problem(
                408,
                f"the body did not arrive within {self._settings.read_timeout:g} s",
                {"Connection": "close"},
            ) from None
        except ClientDisconnect:
            raise Problem(GONE, "the client has gone") from None

    def take(self, size: int) -> None:
        """Count bytes that have arrived. Problem 413 or 429 if they are too many."""
        self.taken += size
        self._bodies.held += size
        if self.taken > self._settings.max_body:
            raise Problem(
                413,
                f"the body has more than the {self._settings.max_body} bytes that are taken",
                {"Connection": "close"},
            )
        if self._bodies.held > self._settings.max_held:
            raise Problem(
                429,
                "the requests under way hold as much memory as they may; try again later",
                {"Retry-After": "1", "Connection": "close"},
            )

    async def _read(self, request: Request) -> bytearray:
        body = bytearray()
        async for chunk in request.stream():
            self.take(len(chunk))
            body += chunk
        return body
