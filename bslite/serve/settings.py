"""`Settings`: all that can be set about a server."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Times are seconds, sizes bytes.

    ``grpc_port``: where gRPC is answered too; None: nowhere. A port of 0 is one that is free.
    ``streams``: runs at a time, each with ``threads`` threads (None: an equal part of the cores), on
    cores of its own if ``pin``. ``precision``: the least accuracy of products, as for `bslite.compile`.
    ``max_batch``: rows that are computed together at most; 1 switches batching off. ``max_delay``: how long a
    request waits for others at most while a stream is idle. ``max_queue``: requests that wait at most.
    ``timeout``: from the arrival of a request's head to its answer. ``read_timeout``: for a request to
    arrive, and for a client to take its answer. ``max_body``: of one request; ``max_held``: of all requests
    that are held.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    grpc_port: int | None = None
    streams: int = 1
    threads: int | None = None
    pin: bool = False
    precision: str = "float32"
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
