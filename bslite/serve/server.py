"""Running the application: a socket, signals, and an end that loses nothing that was accepted."""

import asyncio
import contextlib
import gc
import socket
import threading
from collections.abc import Callable
from types import FrameType

import uvicorn

from bslite.compiled.together import identical
from bslite.errors import EngineError
from bslite.serve.app import application
from bslite.serve.connection import bounded
from bslite.serve.model import Served
from bslite.serve.service import Service
from bslite.serve.settings import Settings
from bslite.spec import Array

KEEP_ALIVE = 75  # seconds; longer than the 60 after which load balancers close connections that rest


class Server(uvicorn.Server):
    """Uvicorn, which on the first signal lets the service drain, and on the second stops at once."""

    def __init__(self, service: Service, on_grpc: Callable[[int], None]) -> None:
        settings = service.settings
        super().__init__(
            uvicorn.Config(
                application(service),
                http=bounded(settings.read_timeout, settings.max_connections),
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=round(settings.timeout) + 1,
                backlog=settings.max_connections,
            )
        )
        self._service, self._on_grpc = service, on_grpc
        self._told = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        async with contextlib.AsyncExitStack() as stack:
            if self._service.settings.grpc_port is not None:
                from bslite.serve.rpc.listener import listening  # takes grpcio, which need not be there

                self._on_grpc(await stack.enter_async_context(listening(self._service)))
            await super().serve(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Not noted as captured: uvicorn would raise it again, and the exit code would not be 0."""
        if self._told:
            self.should_exit = self.force_exit = True
        elif self._loop is not None:
            self._told = True
            self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        self._draining = asyncio.get_running_loop().create_task(self._stop())

    async def _stop(self) -> None:
        await self._service.drain()
        self.should_exit = True


def listen(settings: Settings) -> socket.socket:
    """A socket that listens; EngineError if the address is taken, or is none of this machine's."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # With its protocol named, asyncio sends small packets at once (TCP_NODELAY); else some take 40 ms
        # more.
        made = socket.socket(family, kind, protocol)
    except OSError as e:
        raise EngineError(f"cannot listen at {settings.host}: {e}") from e
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as e:
        made.close()
        raise EngineError(f"cannot listen at {settings.host}:{settings.port}: {e.strerror}") from e
    return made


def serve(
    service: Service,
    sock: socket.socket,
    on_ready: Callable[[Served], None],
    same: Callable[[Array, Array], bool] = identical,
    on_grpc: Callable[[int], None] = lambda port: None,
) -> None:
    """Serve until SIGTERM or SIGINT, then answer what was accepted and return.

    Listens at once, ``on_grpc`` hears at which port for gRPC; models are made ready meanwhile, `same` as for
    `warm`. Raises what that raises, and EngineError if the port for gRPC is taken.
    """
    _more_files(service.settings.max_connections)
    server = Server(service, on_grpc)
    wrong: list[BaseException] = []

    def warm() -> None:
        try:
            service.warm(on_ready, same)
            # What exists now stays. A full collection would look through all of it each time: 70 to 120 ms in
            # which no request is answered.
            gc.collect()
            gc.freeze()
        except BaseException as e:
            wrong.append(e)
            server.should_exit = True

    thread = threading.Thread(target=warm, name="bslite-warm", daemon=True)
    thread.start()
    try:
        server.run([sock])
    finally:
        sock.close()
        failed = wrong[:1]  # what ends the warming from here on is the pool's end
        service.pool.shutdown(cancel_futures=True)
        thread.join()
        gc.unfreeze()
        service.close()
    if failed:
        raise failed[0]


def _more_files(connections: int) -> None:
    """As many open files as the connections take, so far as the system lets us."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = connections + 256
        if soft != resource.RLIM_INFINITY and soft < wanted:
            most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
