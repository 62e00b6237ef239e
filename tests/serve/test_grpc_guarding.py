"""Over gRPC: keys, readiness, deadlines, slow clients, the log and metrics, and the end."""

import json
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from support.noise import noise
from support.serving import Stub, asked, serving, stubbed, tensor

pytest.importorskip("grpc")
pytest.importorskip("tritonclient.grpc")

from support.grpc_client import INFER, Client, Code, by_grpc, client_of, message, refusal

from bslite.errors import EngineError, InputError

ONE = noise(1, 2)


def test_a_port_that_is_taken_is_said() -> None:
    with client_of(stubbed(Stub())) as client, serving(stubbed(Stub())) as other:
        other.service.settings.__dict__["grpc_port"] = int(client.address.rpartition(":")[2])
        with pytest.raises(EngineError, match=rf"cannot listen for gRPC at {client.address}"), by_grpc(other):
            pass


def test_a_key_is_needed_but_for_health() -> None:
    with client_of(stubbed(Stub()), keys=("first", "second")) as client:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "first"}, {"x-api-key": ""}):
            code, told, _ = refusal(lambda h=headers: client.infer("stub", ONE, headers=h))  # type: ignore[misc]
            assert (code, told) == (Code.UNAUTHENTICATED, "a key is needed: Authorization: Bearer KEY")
        for headers in (
            {"authorization": "Bearer first"},
            {"authorization": "bearer second"},
            {"x-api-key": "second"},
        ):
            assert client.infer("stub", ONE, headers=headers).tobytes() == (ONE + 1).tobytes()
        assert client.triton.is_server_live()
        assert client.triton.is_server_ready()
        assert refusal(client.triton.get_server_metadata)[0] is Code.UNAUTHENTICATED


def test_not_ready_until_it_is_warm() -> None:
    served = stubbed(Stub())
    with client_of(served) as client:
        served.ready = False
        assert client.triton.is_server_live()
        assert not client.triton.is_server_ready()
        assert not client.triton.is_model_ready("stub")
        code, told, trailing = refusal(lambda: client.call(message(ONE, "stub", shape=[1, 2])))
        assert (code, told) == (Code.UNAVAILABLE, "model 'stub' is not ready yet")
        assert trailing["retry-after"] == "1"
        served.ready = True
        assert client.infer("stub", ONE).shape == (1, 2)


def test_a_failing_run_is_internal_and_a_wrong_input_invalid() -> None:
    def fail(x: np.ndarray) -> np.ndarray:
        raise InputError("not this one") if x[0, 0] > 0 else RuntimeError("secret")

    with client_of(stubbed(Stub(fail))) as client:
        got = refusal(lambda: client.infer("stub", np.ones((1, 2), np.float32)))
        assert got[:2] == (Code.INVALID_ARGUMENT, "not this one")
        got = refusal(lambda: client.infer("stub", np.zeros((1, 2), np.float32)))
        assert got[:2] == (Code.INTERNAL, "the run failed: RuntimeError")
        assert "secret" in "".join(client.running.lines)
        assert 'bslite_errors_total{model="stub"} 2.0' in client.running.client.get("/metrics").text


@contextmanager
def busy(**more: Any) -> Iterator[tuple[Client, Stub, Any]]:
    """A client of a model that runs a request and does not end until its gate opens, and that request."""
    stub = Stub()
    stub.gate.clear()
    with client_of(stubbed(stub), **more) as client, ThreadPoolExecutor(1) as thread:
        first = thread.submit(client.infer, "stub", ONE)
        assert stub.runs.acquire(timeout=20)
        try:
            yield client, stub, first
        finally:
            stub.gate.set()
        assert first.result().tobytes() == (ONE + 1).tobytes()


def waiting(client: Client, count: int) -> None:
    """Return when so many requests wait."""
    deadline = time.monotonic() + 20
    while client.running.service.scheduler.waiting != count:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_full_queue_is_exhausted_and_counted() -> None:
    with busy(max_queue=1) as (client, stub, _):
        request = message(ONE, "stub", shape=[1, 2])
        second = client.channel.unary_unary(INFER).future(request.SerializeToString())
        waiting(client, 1)
        code, told, trailing = refusal(lambda: client.call(request))
        assert (code, told) == (Code.RESOURCE_EXHAUSTED, "1 requests wait already; try again later")
        assert int(trailing["retry-after"]) >= 1
        assert client.running.infer("stub", asked(tensor("x", ONE))).status_code == 429  # it is one queue
        assert 'bslite_shed_total{model="stub"} 2.0' in client.running.client.get("/metrics").text
        stub.gate.set()
        assert second.result(20)


def test_requests_that_hold_too_much_memory_are_refused() -> None:
    with busy(max_held=100) as (client, _, _):
        code, told, _ = refusal(lambda: client.infer("stub", noise(20, 2)))
        assert code is Code.RESOURCE_EXHAUSTED
        assert "as much memory as they may" in told


@pytest.mark.parametrize("by", ["parameter", "deadline", "cancel"])
def test_a_request_nobody_waits_for_never_runs(by: str) -> None:
    with busy() as (client, stub, _):
        request = message(ONE, "stub", shape=[1, 2])
        if by == "parameter":
            request.parameters["timeout"].int64_param = 200_000
            got = refusal(lambda: client.call(request))
            assert got[:2] == (Code.DEADLINE_EXCEEDED, "there was no answer within 0.2 s")
        else:
            limit = 0.3 if by == "deadline" else None
            late = client.channel.unary_unary(INFER).future(request.SerializeToString(), timeout=limit)
            waiting(client, 1)
            if by == "cancel":
                late.cancel()
            else:
                assert late.code() is Code.DEADLINE_EXCEEDED
        waiting(client, 0)
    assert stub.rows == [1]
    entries = map(json.loads, client.running.lines)
    log = {entry["status"]: entry.get("error", "") for entry in entries}
    assert log.keys() == {200, 499 if by == "cancel" else 504}
    # Who first notices that a deadline has passed, the server's own clock or gRPC, says so.
    told = "the client has gone" if by == "cancel" else "there was no answer|the client's deadline has passed"
    assert re.match(told, log[min(log.keys() - {200})])


def test_the_servers_own_time_is_up() -> None:
    with busy() as (client, stub, _):
        client.running.service.settings.__dict__["timeout"] = 0.2
        got = refusal(lambda: client.infer("stub", ONE))
        assert got[:2] == (Code.DEADLINE_EXCEEDED, "there was no answer within 0.2 s")
        client.running.service.settings.__dict__["timeout"] = 20
    assert stub.rows == [1]


def test_draining_answers_what_is_under_way_and_refuses_the_rest() -> None:
    with busy() as (client, stub, first):
        assert client.running.client.portal is not None
        drained = client.running.client.portal.start_task_soon(client.running.service.drain)
        while not client.running.service.draining:
            pass
        got = refusal(lambda: client.infer("stub", ONE))
        assert got[:2] == (Code.UNAVAILABLE, "the server is stopping")
        assert client.triton.is_server_live()
        assert not client.triton.is_server_ready()
        assert not drained.done()
        stub.gate.set()
        drained.result(timeout=20)
        assert first.result(20).shape == (1, 2)


def test_a_message_that_does_not_arrive_is_given_up() -> None:
    def slowly() -> Iterator[bytes]:
        gate.wait(20)
        yield b""

    gate = threading.Event()
    with client_of(stubbed(Stub()), read_timeout=0.2) as client:
        call = client.channel.stream_unary(INFER).future(slowly())
        assert (call.code(), call.details()) == (
            Code.DEADLINE_EXCEEDED,
            "the request did not arrive within 0.2 s",
        )
        gate.set()


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Of HTTP/2 (RFC 9113, 4.1)."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def header(name: str, text: str) -> bytes:
    """As it is, in no table (RFC 7541, 6.2.2)."""
    return b"".join((b"\0", bytes([len(name)]), name.encode(), bytes([len(text)]), text.encode()))


def test_a_client_that_does_not_take_its_answer_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose window for answers is 0 bytes."""
    monkeypatch.setattr("bslite.serve.rpc.listener.AGE", 1)
    raw = message(ONE, "stub", shape=[1, 2]).SerializeToString()
    fields = {":method": "POST", ":scheme": "http", ":path": INFER, ":authority": "x",
              "content-type": "application/grpc", "te": "trailers"}  # fmt: skip
    with client_of(stubbed(Stub()), read_timeout=0.2, timeout=0.2) as client:
        host, _, port = client.address.partition(":")
        with socket.create_connection((host, int(port)), timeout=20) as sock:
            window = frame(4, 0, 0, struct.pack(">HI", 4, 0))
            head = frame(1, 4, 1, b"".join(header(*field) for field in fields.items()))
            body = frame(0, 1, 1, b"\0" + struct.pack(">I", len(raw)) + raw)
            sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + window + head + body)
            while sock.recv(1 << 16):
                pass
        entry = json.loads(client.running.lines[0])
        assert (entry["status"], entry["error"]) == (408, "the answer was not taken within 0.2 s")


def test_the_log_has_a_line_for_each_request() -> None:
    with client_of(stubbed(Stub())) as client:
        request = message(ONE, "stub", shape=[1, 2])
        request.id = 'a"\n{"status": 200}'
        size = len(client.call(request).SerializeToString())
        client.triton.is_server_live()
        refusal(lambda: client.triton.get_model_metadata("\nevil"))
        assert (
            'bslite_requests_total{model="stub",status="200"} 1.0'
            in client.running.client.get("/metrics").text
        )
    first, second = map(json.loads, client.running.lines)
    assert first["id"] == request.id
    wanted = {"request": "gRPC ModelInfer", "model": "stub", "status": 200, "rows": 1, "batch": 1}
    assert (wanted | {"in": request.ByteSize(), "out": size}).items() <= first.items()
    assert {"queue_ms", "run_ms", "ms", "time"} <= first.keys()
    assert first["client"].startswith("127.0.0.1:")
    assert (second["request"], second["status"]) == ("gRPC ModelMetadata", 404)
    assert not any("\n" in line for line in client.running.lines)
