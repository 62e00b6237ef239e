"""`Settings`: all that can be set about a server."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Times are seconds, sizes bytes.

    ``streams``: runs at a time, each with ``threads`` threads (None: an equal part of the cores), on
    cores of its own if ``pin``.
    ``max_batch``: rows that are computed together at most; 1 switches batching off. ``max_delay``: how long a
    request waits for others at most while a stream is idle. ``max_queue``: requests that wait at most.
    ``timeout``: from the arrival of a request's head to its answer. ``read_timeout``: for a request to
    arrive, and for a client to take its answer. ``max_body``: of one request; ``max_held``: of all requests
    that are held.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    streams: int = 1
    threads: int | None = None
    pin: bool = False
    max_batch: int = 16
    max_delay: float = 0.002
    max_queue: int = 256
    timeout: float = 30.0
    read_timeout: float = 10.0
    max_body: int = 64 << 20
    max_held: int = 1 << 30
    max_connections: int = 1024
    keys: tuple[str, ...] = ()
    access_log: bool = True
