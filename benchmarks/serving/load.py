"""A client that asks at random times, answered or not (an open loop), and one that waits."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from bslite.spec import Array

MOST = 600  # connections; a request that finds none free is counted as failed
PATIENCE = 20.0  # seconds for an answer


@dataclass
class Taken:
    """What became of the requests of one load. ``latencies``: seconds from when a request was due to its
    answer.
    """

    sent: int = 0
    latencies: list[float] = field(default_factory=list)
    shed: int = 0
    failed: int = 0
    wrong: int = 0
    seconds: float = 0.0


def request(x: Array) -> bytes:
    """A request of one tensor in bytes, and its answer in bytes."""
    head = json.dumps(
        {
            "inputs": [
                {"name": "x", "datatype": "FP32", "shape": list(x.shape),
                 "parameters": {"binary_data_size": x.nbytes}}
            ],
            "parameters": {"binary_data_output": True},
        }
    ).encode()  # fmt: skip
    body = head + x.tobytes()
    lines = [
        "POST /v2/models/net/infer HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}",
        f"Inference-Header-Content-Length: {len(head)}",
    ]  # fmt: skip
    return "\r\n".join([*lines, "", ""]).encode() + body


class Client:
    """Keeps connections to one server. ``right``: whether the bytes of an answer to a request are right."""

    def __init__(self, port: int, requests: Sequence[bytes], right: Callable[[int, bytes], bool]) -> None:
        self._port, self._requests, self._right = port, requests, right
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._open = 0

    async def ask(self, number: int, due: float, taken: Taken) -> None:
        """Send a request, and note what becomes of it."""
        taken.sent += 1
        try:
            status, body = await asyncio.wait_for(self._exchange(number), PATIENCE)
        except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
            taken.failed += 1
            return
        if status == 429:
            taken.shed += 1
        elif status != 200:
            taken.failed += 1
        else:
            taken.latencies.append(time.perf_counter() - due)
            taken.wrong += not self._right(number % len(self._requests), body)

    async def _exchange(self, number: int) -> tuple[int, bytes]:
        if self._idle:
            reader, writer = self._idle.pop()
        elif self._open < MOST:
            self._open += 1
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        else:
            raise OSError("no connection is free")
        try:
            writer.write(self._requests[number % len(self._requests)])
            await writer.drain()
            head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii").lower()
            fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
            body = await reader.readexactly(int(fields["content-length"]))
        except BaseException:
            self._open -= 1
            writer.close()
            raise
        self._idle.append((reader, writer))
        return int(head.split()[1]), body[int(fields.get("inference-header-content-length", 0)) :]

    async def text(self, path: str) -> str:
        """What a GET answers."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        made = await reader.read()
        writer.close()
        return made.decode()

    def close(self) -> None:
        """Close what is open."""
        for _, writer in self._idle:
            writer.close()


async def poisson(client: Client, rate: float, seconds: float, seed: int) -> Taken:
    """Requests with exponential gaps, ``rate`` a second on average, for ``seconds``; ends when all are
    answered.
    """
    rng, taken = np.random.default_rng(seed), Taken()
    start = time.perf_counter()
    asking: set[asyncio.Task[None]] = set()
    due, number = start, 0
    while (due := due + rng.exponential(1 / rate)) < start + seconds:
        if (left := due - time.perf_counter()) > 0:
            await asyncio.sleep(left)
        task = asyncio.create_task(client.ask(number, due, taken))
        asking.add(task)
        task.add_done_callback(asking.discard)
        number += 1
    await asyncio.gather(*asking)
    taken.seconds = time.perf_counter() - start
    return taken


async def closed(client: Client, clients: int, seconds: float) -> Taken:
    """So many clients, each of which asks again when it is answered."""
    taken, start = Taken(), time.perf_counter()

    async def one(first: int) -> None:
        number = first
        while (now := time.perf_counter()) < start + seconds:
            await client.ask(number, now, taken)
            number += clients

    await asyncio.gather(*map(one, range(clients)))
    taken.seconds = time.perf_counter() - start
    return taken
