"""``bslite serve`` as a process: real clients, real sockets, many requests at once, signals."""

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.noise import noise
from support.onnx_models import onnx
from support.serving import asked, binary, found, perceptron, tensor

import bslite

httpx = pytest.importorskip("httpx2")
pytestmark = pytest.mark.processes


class Process:
    """The server, its address, and what it said on stderr."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "bslite", "serve", "--port", "0", *arguments]
        self.popen = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self._hears = True
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._ready.wait(120), "".join(self.lines)
        line = next(x for x in self.lines if x.startswith("Listening at "))
        self.url = line.split()[2].rstrip(";")
        self.port = int(self.url.rpartition(":")[2])
        self.grpc = next((x.split()[-1] for x in self.lines if x.startswith("Listening for gRPC at ")), "")

    def _read(self) -> None:
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            if not self._hears:
                return
            self.lines.append(line)
            if line.startswith("Ready: "):
                self._ready.set()
        self._ready.set()

    def stop(self) -> int:
        """Its exit code, after SIGTERM."""
        self.popen.send_signal(signal.SIGTERM)
        code = self.popen.wait(60)
        self._reader.join(10)
        return code

    def deaf(self) -> None:
        """From the next line on, nobody reads what the server says."""
        self._hears = False


@contextlib.contextmanager
def process(*arguments: str) -> Iterator[Process]:
    made = Process(*arguments)
    try:
        yield made
    finally:
        made.popen.kill()
        made.popen.wait()
        made._reader.join(10)
        assert made.popen.stderr is not None
        made.popen.stderr.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model, and one that takes milliseconds a row."""
    folder = tmp_path_factory.mktemp("models")
    onnx.save(perceptron(), folder / "net.onnx")
    from bslite.cli.options import named_architecture

    named_architecture("squeezenet1_1").save(folder / "pictures.safetensors")
    return folder


@pytest.fixture(scope="module")
def server(files: Path) -> Iterator[Process]:
    with process(str(files), "--max-queue", "2000", "--max-connections", "1500") as made:
        yield made


@pytest.fixture(scope="module")
def hasty(files: Path) -> Iterator[Process]:
    """A server that gives a client one second."""
    with process(str(files / "net.onnx"), "--read-timeout", "1", "--max-connections", "20") as made:
        yield made


async def all_at_once(url: str, bodies: list[tuple[bytes, dict[str, str]]], connections: int) -> list[Any]:
    """The answers to all requests, sent at once."""
    limits = httpx.Limits(max_connections=connections)
    async with httpx.AsyncClient(limits=limits, timeout=120) as client:
        posts = [client.post(url, content=content, headers=headers) for content, headers in bodies]
        return await asyncio.gather(*posts, return_exceptions=True)


def test_a_log_that_nobody_reads_stops_no_server(files: Path) -> None:
    """A pipe holds some hundred lines."""
    with process(str(files / "net.onnx"), "--max-queue", "2000", "--max-connections", "100") as server:
        server.deaf()
        url = f"{server.url}/v2/models/net/infer"
        body = binary({"x": noise(1, 8)}, parameters={"binary_data_output": True})
        for _ in range(3):
            made = asyncio.run(all_at_once(url, [body] * 500, 50))
            assert [getattr(m, "status_code", m) for m in made] == [200] * 500
        assert server.stop() == 0


def test_a_thousand_requests_at_once_have_their_own_bits(server: Process, files: Path) -> None:
    alone = bslite.compile(files / "net.onnx")
    inputs = [noise(1 + k % 4, 8, seed=k) for k in range(1000)]
    bodies = [binary({"x": x}, parameters={"binary_data_output": True}) for x in inputs]
    made = asyncio.run(all_at_once(f"{server.url}/v2/models/net/infer", bodies, 1000))
    for x, response in zip(inputs, made, strict=True):
        assert not isinstance(response, Exception), response
        assert found(response, "scores").tobytes() == alone(x)["scores"].tobytes()
    metrics = httpx.get(f"{server.url}/metrics").text
    runs = float(metrics.split('bslite_batch_rows_count{model="net"} ')[1].split("\n")[0])
    assert runs < 1000


def test_pictures_at_once_have_their_own_bits(server: Process, files: Path) -> None:
    alone = bslite.compile(files / "pictures.safetensors")
    inputs = [noise(1, 3, 64 + 32 * (k % 2), 64, seed=k) for k in range(60)]
    bodies = [binary({"x": x}) for x in inputs]
    made = asyncio.run(all_at_once(f"{server.url}/v2/models/pictures/infer", bodies, 60))
    for x, response in zip(inputs, made, strict=True):
        assert found(response, alone.outputs[0].name).tobytes() == alone(x)[0].tobytes()


def test_tritonclient_in_bytes_and_json(server: Process, files: Path) -> None:
    triton = pytest.importorskip("tritonclient.http")
    from tritonclient.utils import InferenceServerException

    client = triton.InferenceServerClient(server.url.removeprefix("http://"), concurrency=4)
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("net")
    assert client.is_model_ready("net", "1")
    assert client.get_server_metadata()["name"] == "bslite"
    assert client.get_model_metadata("net")["inputs"][0]["shape"] == [-1, 8]
    assert {m["name"] for m in client.get_model_repository_index()} == {"net", "pictures"}
    x = noise(3, 8)
    want = bslite.compile(files / "net.onnx")(x)["scores"]
    for sent in (True, False):
        for wanted in (None, [triton.InferRequestedOutput("scores", binary_data=sent)]):
            given = triton.InferInput("x", [3, 8], "FP32")
            given.set_data_from_numpy(x, binary_data=sent)
            made = client.infer("net", [given], outputs=wanted, request_id="7")
            assert made.as_numpy("scores").tobytes() == want.tobytes()
            assert made.get_response()["id"] == "7"
    waiting = [client.async_infer("net", [given]) for _ in range(8)]
    assert all(w.get_result().as_numpy("scores").tobytes() == want.tobytes() for w in waiting)
    wrong = triton.InferInput("x", [1, 8], "FP64")
    wrong.set_data_from_numpy(np.zeros((1, 8)))
    with pytest.raises(InferenceServerException, match="input 'x' is FP32; got 'FP64'") as refused:
        client.infer("net", [wrong])
    assert refused.value.status() == "400"
    client.close()


async def all_by_grpc(address: str, inputs: list[Any]) -> list[Any]:
    """The answers of net to all inputs, sent at once on one connection."""
    import tritonclient.grpc as triton
    from tritonclient.grpc.aio import InferenceServerClient

    async with InferenceServerClient(address) as client:

        async def ask(x: Any) -> Any:
            sent = triton.InferInput("x", list(x.shape), "FP32")
            sent.set_data_from_numpy(x)
            return (await client.infer("net", [sent])).as_numpy("scores")

        return await asyncio.gather(*map(ask, inputs))


def test_a_thousand_requests_by_grpc_have_their_own_bits(files: Path) -> None:
    pytest.importorskip("grpc")
    alone = bslite.compile(files / "net.onnx")
    inputs = [noise(1 + k % 4, 8, seed=k) for k in range(1000)]
    with process(str(files / "net.onnx"), "--grpc-port", "0", "--max-queue", "2000") as made:
        for x, found_ in zip(inputs, asyncio.run(all_by_grpc(made.grpc, inputs)), strict=True):
            assert found_.tobytes() == alone(x)["scores"].tobytes()
        metrics = httpx.get(f"{made.url}/metrics").text
        assert 'bslite_requests_total{model="net",status="200"} 1000.0' in metrics
        assert float(metrics.split('bslite_batch_rows_count{model="net"} ')[1].split("\n")[0]) < 1000
        assert made.stop() == 0


def test_sigterm_in_the_middle_loses_no_request_by_grpc(files: Path) -> None:
    """Every request that was accepted is answered: the log and the clients agree."""
    triton = pytest.importorskip("tritonclient.grpc")
    x = noise(1, 3, 128, 128)
    sent = triton.InferInput("x", list(x.shape), "FP32")
    sent.set_data_from_numpy(x)
    with process(str(files / "pictures.safetensors"), "--grpc-port", "0") as made:
        answered = list[int]()

        def ask() -> str:
            """The status of the first request that is not answered."""
            with triton.InferenceServerClient(made.grpc) as client:
                while True:
                    try:
                        client.infer("pictures", [sent])
                    except triton.InferenceServerException as e:
                        return str(e.status())
                    answered.append(200)

        with ThreadPoolExecutor(16) as clients:
            asking = [clients.submit(ask) for _ in range(16)]
            while len(answered) < 50:
                time.sleep(0.01)
            code = made.stop()
            assert {each.result() for each in asking} == {"StatusCode.UNAVAILABLE"}
        assert code == 0
        log = [json.loads(line)["status"] for line in made.lines if line.startswith("{")]
        assert set(log) <= {200, 503}
        assert log.count(200) == len(answered)


def raw(port: int, *parts: bytes, pause: float = 0.0) -> bytes:
    """What comes back for bytes sent as they are, until the server closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
        for part in parts:
            try:
                sock.sendall(part)
            except OSError:
                break
            time.sleep(pause)
        made = b""
        while chunk := sock.recv(1 << 16):
            made += chunk
    return made


def told(answer: bytes) -> tuple[int, str]:
    """Status and error of an answer."""
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), str(json.loads(body)["error"])


HEAD = b"POST /v2/models/net/infer HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"


def test_what_is_no_request_is_refused_and_the_server_lives_on(server: Process) -> None:
    assert told(raw(server.port, b"\x16\x03\x01 what\r\n\r\n"))[0] == 400
    assert told(raw(server.port, b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 100_000))[0] == 431
    assert told(raw(server.port, b"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))[0] in (
        400,
        404,
    )
    assert told(raw(server.port, b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n"))[0] == 400
    assert told(raw(server.port, HEAD + b"Content-Length: x\r\n\r\n"))[0] == 400
    assert told(raw(server.port, HEAD + b"Content-Length: 99999999999\r\n\r\n{}"))[0] == 413
    assert told(raw(server.port, HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"))[0] in (400, 408)
    assert httpx.get(f"{server.url}/v2/health/live").status_code == 200


def test_slow_clients_are_let_go(hasty: Process) -> None:
    assert told(raw(hasty.port, HEAD)) == (408, "the request did not arrive within 1 s")
    late = raw(hasty.port, HEAD + b"Content-Length: 10\r\n\r\n{")
    assert told(late) == (408, "the body did not arrive within 1 s")
    assert told(raw(hasty.port, *[bytes([c]) for c in HEAD[:25]], pause=0.1))[0] == 408
    assert httpx.get(f"{hasty.url}/v2/health/live").status_code == 200


def test_a_client_that_does_not_read_its_answer_is_let_go(hasty: Process) -> None:
    """The answers to many requests in one connection, none of which is read."""
    body, headers = binary({"x": noise(4000, 8)})
    one = HEAD.replace(b"Connection: close\r\n", b"")
    one += f"Content-Length: {len(body)}\r\nInference-Header-Content-Length: ".encode()
    one += f"{headers['Inference-Header-Content-Length']}\r\n\r\n".encode() + body
    with socket.create_connection(("127.0.0.1", hasty.port), timeout=20) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sent = 0
        with contextlib.suppress(ConnectionError):
            for sent in range(200):  # noqa: B007
                sock.sendall(one)
                time.sleep(0.05)
        assert sent < 199
    assert httpx.get(f"{hasty.url}/v2/health/live").status_code == 200


def test_connections_beyond_the_most_are_refused(hasty: Process) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(socket.create_connection(("127.0.0.1", hasty.port)))
        assert told(raw(hasty.port)) == (503, "there are too many connections; try again later")
    deadline = time.monotonic() + 20
    while httpx.get(f"{hasty.url}/v2/health/live").status_code != 200:
        assert time.monotonic() < deadline


def test_overload_is_shed_and_what_is_accepted_is_answered(files: Path) -> None:
    with process(str(files / "pictures.safetensors"), "--max-queue", "4", "--max-batch", "1") as made:
        bodies = [binary({"x": noise(1, 3, 64, 64, seed=k)}) for k in range(100)]
        alone = bslite.compile(files / "pictures.safetensors")
        answers = asyncio.run(all_at_once(f"{made.url}/v2/models/pictures/infer", bodies, 100))
        statuses = [r.status_code for r in answers]
        assert set(statuses) == {200, 429}
        for k, response in enumerate(answers):
            if response.status_code == 200:
                want = alone(noise(1, 3, 64, 64, seed=k))[0]
                assert found(response, alone.outputs[0].name).tobytes() == want.tobytes()
            else:
                assert int(response.headers["retry-after"]) >= 1
        assert made.stop() == 0
        log = [json.loads(line) for line in made.lines if line.startswith("{")]
        assert sorted(x["status"] for x in log) == sorted(statuses)


def test_sigterm_in_the_middle_loses_no_accepted_request(files: Path) -> None:
    """Every request is answered, refused with 503 or never accepted; the log and the clients agree."""
    with process(str(files / "pictures.safetensors")) as made:
        url, statuses, lock = f"{made.url}/v2/models/pictures/infer", list[int](), threading.Lock()
        body, headers = binary({"x": noise(1, 3, 128, 128)})
        stop = threading.Event()

        def ask() -> int:
            """Requests that got no answer."""
            with httpx.Client(timeout=60) as client:
                while not stop.is_set():
                    try:
                        status = client.post(url, content=body, headers=headers).status_code
                    except httpx.ConnectError:
                        return 0  # nobody listens any more: the request was not accepted
                    except httpx.HTTPError:
                        return 1  # a connection at rest, closed as the server ended: by the log below
                    with lock:
                        statuses.append(status)
            return 0

        with ThreadPoolExecutor(16) as clients:
            asking = [clients.submit(ask) for _ in range(16)]
            while len(statuses) < 50:
                time.sleep(0.01)
            code = made.stop()
            stop.set()
            for each in asking:
                each.result()
        assert code == 0
        assert set(statuses) <= {200, 503}
        log = [json.loads(line) for line in made.lines if line.startswith("{")]
        served = [x["status"] for x in log if x["request"].startswith("POST")]
        assert sorted(served) == sorted(statuses)
        assert any("every request that was accepted has been answered" in line for line in made.lines)


def test_a_model_that_is_none_ends_the_command(tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    command = [sys.executable, "-m", "bslite", "serve", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "bad.onnx" in done.stderr
    assert "Traceback" not in done.stderr


def test_nested_json_for_a_person_with_curl(server: Process) -> None:
    got = httpx.post(f"{server.url}/v2/models/net/infer", json=asked(tensor("x", noise(1, 8))))
    assert got.status_code == 200
    assert len(got.json()["outputs"][0]["data"]) == 5
