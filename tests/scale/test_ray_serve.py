"""`bslite.ray.deployment` in Ray Serve, on several nodes: batches, errors, a replica that is killed."""

import json
import os
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from support.graphs import network, one_op
from support.ray_cluster import NODE

import bslite
import bslite.ray
from bslite.errors import EngineError, FileError, InputError, SpecError

pytest.importorskip("ray.serve")
#: Ray warns of its own parts.
pytestmark = [pytest.mark.processes, pytest.mark.filterwarnings("ignore::Warning:ray")]


@pytest.fixture(scope="module")
def at(cluster: Any) -> Iterator[str]:
    """Where Serve listens, without an application."""
    from ray import serve

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": port})
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        serve.shutdown()


@pytest.fixture
def run(at: str) -> Iterator[Callable[..., Any]]:
    """Runs an application until the test's end."""
    from ray import serve

    names: list[str] = []

    def started(model: Any, **options: Any) -> Any:
        names.append(f"app{len(names)}")
        application = bslite.ray.deployment(model, graceful_shutdown_wait_loop_s=0.1, **options)
        return serve.run(application, name=names[-1], route_prefix=f"/{names[-1]}")

    yield started
    for name in names:
        serve.delete(name)


def images(count: int) -> Any:
    return np.random.default_rng(2).standard_normal((count, 3, 64, 64)).astype(np.float32)


def test_answers_of_a_batch_have_the_bits_of_alone(run: Any) -> None:
    spec = network("squeezenet1_1", size=64)
    handle = run(spec, max_batch_size=8, batch_wait_timeout_s=0.2)
    x = images(24)
    asked = [x[i : i + 1 + i % 3] for i in range(20)]
    waiting = [handle.remote(part) for part in asked]
    bad = handle.remote(x[:1, :2])
    for part, answer in zip(asked, waiting, strict=True):
        assert answer.result()[0].tobytes() == bslite.run(spec, part).tobytes()
    with pytest.raises(InputError, match="axis 1 is 2, should be 3"):
        bad.result()
    told = handle.status.remote().result()
    assert told["requests"] == 21
    assert told["batches"] < 21
    assert (
        handle.remote(x[:9]).result()[0].tobytes() == bslite.run(spec, x[:9]).tobytes()
    )  # more than a batch


def test_inputs_by_name_and_tensors(run: Any) -> None:
    torch = pytest.importorskip("torch")
    handle = run(one_op("add", ("N", 4), ("N", 4)))
    x, y = np.float32([[1, 2, 3, 4]]), np.float32([[4, 3, 2, 1]])
    for made in (handle.remote(x, y), handle.remote(x0=x, x1=y), handle.remote({"x1": y, "x0": x})):
        assert made.result()["layer"].tolist() == [[5, 5, 5, 5]]
    assert torch.equal(
        handle.remote(torch.from_numpy(x), torch.from_numpy(y)).result()[0], torch.full((1, 4), 5.0)
    )
    with pytest.raises(InputError, match="x1 is missing"):
        handle.remote(x).result()


def test_the_protocol_by_http(run: Any, at: str) -> None:
    run(one_op("add", ("N", 2), ("N", 2)), name="sum")

    def ask(path: str, document: Any = None) -> tuple[int, Any]:
        data = None if document is None else json.dumps(document).encode()
        try:
            with urllib.request.urlopen(f"{at}/app0/v2{path}", data, 30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as e:
            return e.code, json.load(e)

    def tensor(name: str, *data: float) -> Any:
        return {"name": name, "shape": [1, 2], "datatype": "FP32", "data": list(data)}

    assert ask("/health/ready") == (200, {"ready": True})
    status, told = ask("/models/sum")
    assert (status, told["name"]) == (200, "sum")
    assert told["inputs"][0] == {"name": "x0", "datatype": "FP32", "shape": [-1, 2]}
    status, made = ask("/models/sum/infer", {"inputs": [tensor("x0", 1, 2), tensor("x1", 3, 4)]})
    assert (status, made["outputs"][0]["data"]) == (200, [4, 6])
    for path, document, wrong in [
        ("/models/sum/infer", {"inputs": [tensor("x0", 1, 2)]}, (400, "input 'x1' is missing")),
        ("/models/other/infer", {}, (404, "there is no model 'other'; there is 'sum'")),
        ("/models/sum/infer", None, (405, "takes POST")),
        ("/nowhere", None, (404, "there is nothing at /app0/v2/nowhere")),
    ]:
        status, made = ask(path, document)
        assert (status, wrong[1] in made["error"]) == (wrong[0], True), made


def test_a_model_that_takes_no_rows(run: Any) -> None:
    spec = one_op("softmax", ("N", 4), axis=0)
    handle = run(spec, max_batch_size=1)
    x = np.float32([[1, 2, 3, 4], [0, 1, 0, 1]])
    assert handle.remote(x).result()[0].tobytes() == bslite.run(spec, x).tobytes()


def test_what_is_wrong_is_said_before_anything_starts() -> None:
    spec = one_op("relu", ("N", 4))
    weights = np.zeros((bslite.ray.MOST_BYTES // 4096 + 1, 1024), np.float32)
    for model, options, error, words in [
        (spec, {"max_batch_size": 0}, InputError, "max_batch_size is 0; expected a number of rows"),
        (spec, {"batch_wait_timeout_s": "1"}, InputError, "batch_wait_timeout_s is '1'; expected a number"),
        (spec, {"user_config": {"wait": 1}}, InputError, "user_config has 'wait'; a replica takes max_batch"),
        (spec, {"threads": 0}, EngineError, "threads must be a positive integer"),
        (object(), {}, InputError, "takes a ModelSpec, .* got object; of a torch module, give"),
        (b"no model", {}, FileError, "not an ONNX model, or damaged"),
        (one_op("relu", (2, 4)), {}, SpecError, "axis 0 of every input must be open, or 1"),
        (one_op("linear", ("N", 1024), weight=weights), {}, InputError, "128 MB, .*bslite.save"),
    ]:
        with pytest.raises(error, match=words):
            bslite.ray.deployment(model, **options)


def test_a_killed_replica_is_replaced_under_load(run: Any, cluster: Any) -> None:
    from ray.exceptions import RayError

    spec = network("squeezenet1_1", size=64)
    node = cluster.add_node(**NODE, num_cpus=1)
    try:
        handle = run(spec, num_replicas=2, num_cpus=0.5, max_batch_size=4, health_check_period_s=1)
        x = images(8)
        want = [y.tobytes() for y in bslite.run(spec, x)]

        def ask(i: int) -> tuple[bool, int]:
            """Whether the answer is right, and how often it was asked for."""
            for attempt in range(1, 50):
                try:
                    return handle.remote(x[i % 8 : i % 8 + 1]).result()[0][0].tobytes() == want[
                        i % 8
                    ], attempt
                except RayError:  # the replica died with the request
                    time.sleep(0.1)
            return False, 50

        with ThreadPoolExecutor(8) as pool:
            answers = [pool.submit(ask, i) for i in range(200)]
            while sum(a.done() for a in answers) < 20:
                time.sleep(0.01)
            killed = handle.status.remote().result()["pid"]
            os.kill(killed, signal.SIGKILL)
            made = [a.result() for a in answers]
        assert all(right for right, _ in made)
        until = time.monotonic() + 60
        pids: set[int] = set()
        while len(pids - {killed}) < 2:
            assert time.monotonic() < until, "there is no second replica again"
            pids |= {handle.status.remote().result()["pid"]}
    finally:
        cluster.remove_node(node)
