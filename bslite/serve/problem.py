"""`Problem`: what a request is refused with."""

from collections.abc import Mapping

GONE = 499  # nginx's number for a client that did not wait for its answer; only the log sees it


class Problem(Exception):
    """An HTTP status, a message for the client, and headers to send along."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, dict(headers or {})
