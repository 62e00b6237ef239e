"""The port at which the protocol's gRPC service is answered."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from bslite.errors import EngineError
from bslite.serve.rpc.methods import Methods
from bslite.serve.service import Service

REST = 75  # seconds that a connection may rest
#: Seconds after which a client is asked to connect anew, with the time of a request left to those under way.
#: gRPC has no other way to be rid of one that does not take its answers.
AGE = 600


@asynccontextmanager
async def listening(service: Service) -> AsyncIterator[int]:
    """The port, on which a service's methods are answered inside the block. EngineError if it is taken.

    At the end, requests that are still under way are cancelled; where there are none, clients may take the
    answers that they were given.
    """
    settings = service.settings
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"{host}:{settings.grpc_port or 0}"
    options = (
        ("grpc.max_receive_message_length", settings.max_body),
        # None, as over HTTP: a small message could become a huge one.
        ("grpc.compression_enabled_algorithms_bitset", 1),
        ("grpc.so_reuseport", 0),  # a port that is taken is an error; it is not shared
        ("grpc.server_handshake_timeout_ms", round(1e3 * settings.read_timeout)),
        ("grpc.max_connection_idle_ms", 1000 * REST),
        ("grpc.max_connection_age_ms", 1000 * AGE),
        ("grpc.max_connection_age_grace_ms", round(1e3 * (settings.timeout + 2 * settings.read_timeout))),
    )
    server = grpc.aio.server(options=options, maximum_concurrent_rpcs=settings.max_connections)
    server.add_generic_rpc_handlers((Methods(service).handler(),))
    try:
        port = server.add_insecure_port(address)
    except RuntimeError:
        raise EngineError(
            f"cannot listen for gRPC at {address}: it is taken, or none of this machine's"
        ) from None
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None if service.gate.in_flight else settings.read_timeout)
