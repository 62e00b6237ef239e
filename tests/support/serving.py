"""Models served in this process, and stand-ins for models that do what a test needs."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import bslite
from bslite.spec.ports import Port
from support.noise import noise
from support.onnx_models import helper, model, value

pytest.importorskip("starlette")

from starlette.testclient import TestClient

from bslite.serve.app import application
from bslite.serve.model import Served
from bslite.serve.price import Price
from bslite.serve.service import Service
from bslite.serve.settings import Settings
from bslite.serve.warm import warm

#: Batches of eight take no longer than one row: as many as may run together.
FREE = Price({1: 0.01, 2: 0.01, 4: 0.01, 8: 0.01})


def perceptron() -> Any:
    """Two layers, batch open: x [n, 8] -> scores [n, 5]."""
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["scores"]),
    ]
    stored = {"w": noise(8, 16), "b": noise(16), "v": noise(16, 5)}
    return model(nodes, [value("x", ["n", 8])], [value("scores", ["n", 5])], stored)


class Stub:
    """In the place of a CompiledModel: x [n, 2] -> y [n, 2], by a function. Notes the rows of each run."""

    def __init__(self, work: Callable[[np.ndarray], np.ndarray] = lambda x: x + 1) -> None:
        self.inputs, self.outputs = (Port("x", ("n", 2), "float32"),), (Port("y", ("n", 2), "float32"),)
        self.pieces, self.work, self.rows, self.closed = ["engine: a stub"], work, list[int](), False
        self.runs, self.gate = threading.Semaphore(0), threading.Event()
        self.gate.set()

    def __call__(self, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.rows.append(len(given["x"]))
        self.runs.release()
        assert self.gate.wait(20)
        return {"y": self.work(given["x"])}

    def close(self) -> None:
        self.closed = True


def stubbed(stub: Stub, name: str = "stub", price: Price = FREE) -> Served:
    """A stub under a name, as if warm."""
    return Served(name, stub, price=price, alone="", ready=True)  # type: ignore[arg-type]


class Running:
    """A service, a client of it, and the lines that it logged."""

    def __init__(self, service: Service, client: TestClient, lines: list[str]) -> None:
        self.service, self.client, self.lines = service, client, lines

    def infer(self, name: str, body: Any, headers: Mapping[str, str] | None = None) -> Any:
        """Ask a model; ``body`` is JSON, or bytes."""
        url = f"/v2/models/{name}/infer"
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.client.post(url, content=content, headers=headers)


@contextmanager
def serving(*models: Served, **settings: Any) -> Iterator[Running]:
    """The application in this process, on one event loop, its models warm."""
    lines = list[str]()
    service = Service(models, Settings(**settings), lines.append)
    for each in models:
        if not each.ready:
            warm(each, service.settings, service.pool)
    with TestClient(application(service), raise_server_exceptions=False) as client:
        yield Running(service, client, lines)
    service.close()


def compiled(proto: Any, name: str) -> Served:
    """An ONNX model, not warm yet."""
    return Served(name, bslite.compile(proto))


def tensor(name: str, array: Any, **more: Any) -> dict[str, Any]:
    """An input as JSON."""
    array = np.asarray(array)
    kinds = {
        "f4": "FP32",
        "i8": "INT64",
        "b1": "BOOL",
        "u1": "UINT8",
        "f8": "FP64",
        "f2": "FP16",
        "i4": "INT32",
    }
    datatype = kinds.get(array.dtype.str[1:], "BYTES")
    return {
        "name": name,
        "datatype": datatype,
        "shape": list(array.shape),
        "data": array.ravel().tolist(),
        **more,
    }


def asked(*tensors: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A request as JSON."""
    return {"inputs": list(tensors), **more}


def binary(arrays: Mapping[str, Any], **more: Any) -> tuple[bytes, dict[str, str]]:
    """A request with its tensors as bytes, and its headers."""
    raw = [np.asarray(x).tobytes() for x in arrays.values()]
    tensors = []
    for (name, x), bytes_ in zip(arrays.items(), raw, strict=True):
        tensors.append(tensor(name, x, parameters={"binary_data_size": len(bytes_)}))
        del tensors[-1]["data"]
    head = json.dumps(asked(*tensors, **more)).encode()
    return b"".join([head, *raw]), {"Inference-Header-Content-Length": str(len(head))}


def found(response: Any, name: str) -> np.ndarray:
    """An output of an answer, of floats, from JSON or bytes."""
    length = response.headers.get("inference-header-content-length")
    document = json.loads(response.content[: int(length)] if length else response.content)
    at = int(length or 0)
    for output in document["outputs"]:
        size = output.get("parameters", {}).get("binary_data_size")
        raw = None if size is None else response.content[at : at + size]
        at += size or 0
        if output["name"] == name:
            kind = {"FP32": "<f4", "INT64": "<i8", "BOOL": "?"}[output["datatype"]]
            flat = np.array(output["data"], kind) if raw is None else np.frombuffer(raw, kind)
            return flat.reshape(output["shape"])
    raise AssertionError(f"there is no output {name}: {document}")
