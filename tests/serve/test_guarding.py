"""Keys, deadlines, readiness, the log and metrics, and the end."""

import asyncio
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.noise import noise
from support.onnx_models import helper, model, value
from support.serving import Stub, asked, compiled, perceptron, serving, stubbed, tensor

import bslite
from bslite.errors import EngineError, FileError, InputError, UnsupportedError
from bslite.serve.found import find, load
from bslite.serve.server import listen
from bslite.serve.settings import Settings

ONE = asked(tensor("x", noise(1, 2)))


def test_a_key_is_needed_but_for_health() -> None:
    with serving(stubbed(Stub()), keys=("first", "second")) as running:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "first"}, {"X-API-Key": ""}):
            got = running.infer("stub", ONE, headers)
            assert got.status_code == 401
            assert "error" in got.json()
            assert got.headers["www-authenticate"] == "Bearer"
        for headers in (
            {"Authorization": "Bearer first"},
            {"authorization": "bearer second"},
            {"X-API-Key": "second"},
        ):
            assert running.infer("stub", ONE, headers).status_code == 200
        assert running.client.get("/v2/health/ready").status_code == 200
        assert running.client.get("/metrics").status_code == 401


def test_not_ready_until_it_is_warm() -> None:
    served = stubbed(Stub())
    with serving(served) as running:
        served.ready = False
        assert running.client.get("/v2/health/live").status_code == 200
        assert running.client.get("/v2/health/ready").status_code == 503
        assert running.client.get("/v2/models/stub/ready").status_code == 503
        got = running.infer("stub", ONE)
        assert (got.status_code, got.headers["retry-after"]) == (503, "1")
        assert got.json() == {"error": "model 'stub' is not ready yet"}
        served.ready = True
        assert running.infer("stub", ONE).status_code == 200


@pytest.mark.parametrize("by", ["server", "client"])
def test_a_deadline_in_the_queue(by: str) -> None:
    """The request that ran out of time is answered 504 and never runs; the one before it is not touched."""
    stub = Stub()
    stub.gate.clear()
    limits = {"timeout": 0.2} if by == "server" else {}
    with serving(stubbed(stub), **limits) as running, ThreadPoolExecutor(1) as clients:
        if by == "server":
            running.service.settings.__dict__["timeout"] = 20
        first = clients.submit(running.infer, "stub", ONE)
        assert stub.runs.acquire(timeout=20)
        if by == "server":
            running.service.settings.__dict__["timeout"] = 0.2
        more = {} if by == "server" else {"parameters": {"timeout": 200_000}}
        late = running.infer("stub", {**ONE, **more})
        assert late.status_code == 504
        assert late.json() == {"error": "there was no answer within 0.2 s"}
        stub.gate.set()
        assert first.result().status_code == 200
    assert stub.rows == [1]


def test_a_failing_run_is_500_and_a_wrong_input_400() -> None:
    def fail(x: np.ndarray) -> np.ndarray:
        raise InputError("not this one") if x[0, 0] > 0 else RuntimeError("secret")

    with serving(stubbed(Stub(fail))) as running:
        got = running.infer("stub", asked(tensor("x", np.ones((1, 2), np.float32))))
        assert (got.status_code, got.json()) == (400, {"error": "not this one"})
        got = running.infer("stub", asked(tensor("x", np.zeros((1, 2), np.float32))))
        assert (got.status_code, got.json()) == (500, {"error": "the run failed: RuntimeError"})
        assert "secret" in "".join(running.lines)
        assert 'bslite_errors_total{model="stub"} 2.0' in running.client.get("/metrics").text


def test_a_full_queue_is_429_and_counted() -> None:
    stub = Stub()
    stub.gate.clear()
    with serving(stubbed(stub), max_queue=1) as running, ThreadPoolExecutor(2) as clients:
        first = clients.submit(running.infer, "stub", ONE)
        assert stub.runs.acquire(timeout=20)
        second = clients.submit(running.infer, "stub", ONE)
        while not running.service.scheduler.waiting:
            pass
        got = running.infer("stub", ONE)
        assert got.status_code == 429
        assert int(got.headers["retry-after"]) >= 1
        metrics = running.client.get("/metrics").text
        assert 'bslite_shed_total{model="stub"} 1.0' in metrics
        assert 'bslite_queue_depth{model="stub"} 1.0' in metrics
        stub.gate.set()
        assert [first.result().status_code, second.result().status_code] == [200, 200]


def test_draining_answers_what_is_under_way_and_refuses_the_rest() -> None:
    stub = Stub()
    stub.gate.clear()
    with serving(stubbed(stub)) as running, ThreadPoolExecutor(2) as clients:
        first = clients.submit(running.infer, "stub", ONE)
        assert stub.runs.acquire(timeout=20)
        portal = running.client.portal
        assert portal is not None
        drained = portal.start_task_soon(running.service.drain)
        while not running.service.draining:
            pass
        got = running.infer("stub", ONE)
        assert (got.status_code, got.json()) == (503, {"error": "the server is stopping"})
        assert running.client.get("/v2/health/ready").status_code == 503
        assert running.client.get("/v2/health/live").status_code == 200
        assert not drained.done()
        stub.gate.set()
        assert first.result().status_code == 200
        drained.result(timeout=20)
    assert stub.closed


def test_a_client_that_goes_takes_its_request_along() -> None:
    """By the application's own interface: no body follows but the news that the client has gone."""
    stub = Stub()
    stub.gate.clear()
    with serving(stubbed(stub)) as running, ThreadPoolExecutor(1) as clients:
        first = clients.submit(running.infer, "stub", ONE)
        assert stub.runs.acquire(timeout=20)
        messages = [{"type": "http.request", "body": json.dumps(ONE).encode()}, {"type": "http.disconnect"}]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v2/models/stub/infer",
            "headers": [],
            "query_string": b"",
        }

        async def receive() -> Any:
            return messages.pop(0) if messages else await asyncio.sleep(20)

        async def send(message: Any) -> None:
            pass

        assert running.client.portal is not None
        running.client.portal.call(running.client.app, scope, receive, send)
        assert running.service.scheduler.waiting == 0
        stub.gate.set()
        assert first.result().status_code == 200
    assert stub.rows == [1]
    assert json.loads(running.lines[0])["error"] == "the client has gone"


def test_the_log_is_json_whatever_a_client_says() -> None:
    with serving(stubbed(Stub())) as running:
        running.infer("stub", {**ONE, "id": 'a"\n{"status": 200}'})
        running.client.get("/v2/models/%0Aevil")
        running.client.get("/v2/health/live")
    first, second = (json.loads(line) for line in running.lines)
    assert first["id"] == 'a"\n{"status": 200}'
    assert {"model": "stub", "status": 200, "rows": 1, "batch": 1}.items() <= first.items()
    assert {"queue_ms", "run_ms", "ms", "in", "out", "client", "time"} <= first.keys()
    assert second["status"] == 404
    assert not any("\n" in line for line in running.lines)


def test_clients_words_are_no_labels() -> None:
    with serving(stubbed(Stub())) as running:
        assert running.infer("unheard", ONE).status_code == 404
        assert "unheard" not in running.client.get("/metrics").text


def test_models_are_found_by_file_folder_and_name(tmp_path: Path) -> None:
    import onnx

    proto = perceptron()
    for place in ("a.onnx", "deep/model.onnx", "triton/1/model.onnx", "note.txt"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        onnx.save(proto, tmp_path / place)
    bslite.from_onnx(proto).save(tmp_path / "b.safetensors")
    found = find([str(tmp_path)])
    assert {n: str(p.relative_to(tmp_path)) for n, p in found.items()} == {
        "a": "a.onnx",
        "b": "b.safetensors",
        "deep": "deep/model.onnx",
        "triton": "triton/1/model.onnx",
    }
    assert list(find([f"mine={tmp_path / 'a.onnx'}", f"other={tmp_path / 'deep'}"])) == ["mine", "other"]
    served = load("b", found["b"], Settings())
    assert (served.metadata()["platform"], served.inputs[0].name) == ("bslite", "x")
    with pytest.raises(InputError, match="model 'a' is both"):
        find([str(tmp_path), str(tmp_path / "a.onnx")])
    with pytest.raises(FileError, match=r"there is no such file"):
        find([str(tmp_path / "c.onnx")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileError, match=r"no \.onnx or \.safetensors file in it"):
        find([str(tmp_path / "empty")])
    with pytest.raises(InputError, match="holds 4 models; a name is given to one"):
        find([f"all={tmp_path}"])


def test_ports_without_a_datatype_are_refused() -> None:
    sequence = helper.make_tensor_sequence_value_info("s", 1, None)
    proto = model([helper.make_node("SequenceLength", ["s"], ["n"])], [sequence], [value("n", [], 7)])
    with pytest.raises(UnsupportedError, match="the protocol has no datatype for s"):
        compiled(proto, "odd")


def test_an_address_that_is_taken_is_said() -> None:
    with listen(Settings(port=0)) as taken:
        taken.listen()
        assert taken.proto == socket.IPPROTO_TCP  # or asyncio leaves answers waiting for acknowledgements
        port = taken.getsockname()[1]
        with pytest.raises(
            EngineError, match=rf"cannot listen at 127\.0\.0\.1:{port}: Address already in use"
        ):
            listen(Settings(port=port))
    with pytest.raises(EngineError, match="cannot listen at no such host"):
        listen(Settings(host="no such host"))
