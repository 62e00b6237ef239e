"""``bslite serve``: models over HTTP and gRPC, for clients of the Open Inference Protocol."""

import ipaddress
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from bslite.arithmetic import Precision
from bslite.cli import options
from bslite.cli.progress import activity, notes
from bslite.errors import EngineError, FileError, InputError

if TYPE_CHECKING:
    from bslite.serve.model import Served
    from bslite.serve.settings import Settings

KEY = "BSLITE_API_KEY"  # the environment's name of a key
MIB = 1 << 20


def serve(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL",
            help="Model files (.onnx, or written by spec.save()), folders of them, or NAME=PATH.",
            show_default=False,
        ),
    ],
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 is all of them.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes one that is free.")] = 8000,
    grpc_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port for gRPC too; 0 is a free one.", show_default=False),
    ] = None,
    streams: Annotated[int, typer.Option(min=1, help="Runs at a time.")] = 1,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, help="Threads of a run. Default: an equal part of the cores.", show_default=False
        ),
    ] = None,
    pin: Annotated[bool, typer.Option("--pin", help="Keep each stream to cores of its own.")] = False,
    precision: options.Precision = Precision.FLOAT32,
    max_batch: Annotated[
        int, typer.Option(min=1, help="Rows computed together at most; 1 switches batching off.")
    ] = 16,
    max_delay: Annotated[
        float, typer.Option(min=0, help="Milliseconds a request waits for others at most.")
    ] = 2.0,
    max_queue: Annotated[int, typer.Option(min=1, help="Requests that wait at most; others get 429.")] = 256,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds to an answer; later it is 504.")] = 30.0,
    read_timeout: Annotated[
        float, typer.Option(min=0.001, help="Seconds for a request to arrive, or an answer to be taken.")
    ] = 10.0,
    max_body: Annotated[
        float, typer.Option(min=0.001, help="MiB of a request's body; larger ones get 413.")
    ] = 64,
    max_connections: Annotated[int, typer.Option(min=1, help="Connections at a time.")] = 1024,
    api_key_file: Annotated[
        Path | None,
        typer.Option(help=f"Keys, one a line, of which requests need one. Or ${KEY}.", show_default=False),
    ] = None,
    access_log: Annotated[bool, typer.Option(help="A line of JSON for each request on stderr.")] = True,
) -> None:
    """Serve models over HTTP and gRPC, Open Inference Protocol V2: to tritonclient, KServe's clients, curl.

    Requests that wait are computed together where that pays; every answer has the bits that it has alone.
    SIGTERM and Ctrl+C answer what was accepted and stop.
    """
    try:
        import httptools  # noqa: F401  # only to see that they are there
        import orjson  # noqa: F401
        import prometheus_client  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as e:
        raise EngineError(
            f'bslite serve needs {e.name}; install it with: pip install "bslite[cli,serve]"'
        ) from None
    if grpc_port is not None:
        # What gRPC's C code has to say about clients is no line of JSON, and the log has it in its own words.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        try:
            import google.protobuf  # noqa: F401
            import grpc  # noqa: F401
        except ModuleNotFoundError as e:
            raise EngineError(
                f'--grpc-port needs {e.name}; install it with: pip install "bslite[cli,serve,grpc]"'
            ) from None
    from bslite.serve.found import find, load
    from bslite.serve.log import log
    from bslite.serve.server import listen
    from bslite.serve.server import serve as run
    from bslite.serve.service import Service
    from bslite.serve.settings import Settings

    settings = Settings(
        host=host, port=port, grpc_port=grpc_port, streams=streams, threads=threads, pin=pin,
        precision=precision.value,
        max_batch=max_batch, max_delay=max_delay / 1e3,
        max_queue=max_queue, timeout=timeout, read_timeout=read_timeout, max_body=int(max_body * MIB),
        max_connections=max_connections, keys=_keys(api_key_file), access_log=access_log,
    )  # fmt: skip
    files = find(models)
    with activity(f"Loading {', '.join(files)}"):
        served = [load(name, path, settings) for name, path in files.items()]
    sock = listen(settings)
    sock.listen()
    url = _url(sock.getsockname()[:2])
    notes.print(f"Listening at {url}; not ready before the models are warm", soft_wrap=True)
    if not _loopback(host) and not settings.keys:
        notes.print(f"Anybody who reaches {host} can use it: there is no --api-key-file", soft_wrap=True)
    left = list(served)

    def on_ready(model: "Served") -> None:
        left.remove(model)
        notes.print(f"{model.name} is warm after {model.warmed:.1f} s", markup=False)
        if not left:
            notes.print(_table(served))
            notes.print(_told(settings, served[0].compiled.threads), soft_wrap=True, markup=False)
            notes.print(f"Ready: {url}/v2/models/{served[0].name}", soft_wrap=True, markup=False)

    def on_grpc(port: int) -> None:
        notes.print(f"Listening for gRPC at {_url((host, port)).removeprefix('http://')}", soft_wrap=True)

    with log() as out:
        run(Service(served, settings, out), sock, on_ready, on_grpc=on_grpc)
        out("Stopped; every request that was accepted has been answered")


def _keys(path: Path | None) -> tuple[str, ...]:
    """The keys of a file and of the environment. FileError for a file that has none."""
    keys = [os.environ[KEY]] if os.environ.get(KEY) else []
    if path is not None:
        try:
            lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
        except (OSError, UnicodeDecodeError) as e:
            raise FileError(f"{path}: cannot read the keys ({e})") from e
        if not any(lines):
            raise FileError(f"{path}: there is no key in it")
        keys += [line for line in lines if line]
    if any(not key.isascii() or not key.isprintable() for key in keys):
        raise InputError("a key has characters that no HTTP header carries; expected printable ASCII")
    return tuple(keys)


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _url(address: tuple[str, int]) -> str:
    host, port = address
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _table(models: "list[Served]") -> Table:
    table = Table(show_header=False, box=None, padding=(0, 2))
    for m in models:
        for ports, verb in ((m.inputs, "takes"), (m.outputs, "gives")):
            for number, port in enumerate(ports):
                first = (m.name if verb == "takes" else "", verb) if number == 0 else ("", "")
                table.add_row(*map(escape, (*first, str(port))))
        table.add_row("", "runs", escape(_together(m)))
    return table


def _together(model: "Served") -> str:
    """The price of a model's batches, up to the one that pays most."""
    times = [f"{rows}: {1e3 * model.price.of(rows):.3g} ms" for rows in sorted(model.price.seconds)]
    if model.alone:
        return f"one by one: {model.alone}" + (f"; {times[0][3:]}" if model.price.of(1) else "")
    most = model.price.most
    return ", ".join(times) + (f"; up to {most}" if most > 1 else "; one by one is as fast")


def _told(settings: "Settings", threads: int | None) -> str:
    each = f"{threads} thread{'s' * (threads != 1)}"
    return (
        f"{settings.streams} run{'s' * (settings.streams != 1)} at a time on {each}, "
        f"{settings.max_queue} requests may wait, an answer within {settings.timeout:g} s, "
        f"bodies up to {settings.max_body / MIB:g} MiB, {len(settings.keys) or 'no'} key(s)"
    )
