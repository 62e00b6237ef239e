"""A service answering gRPC in this process, and clients of it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from support.noise import noise
from support.serving import Running, serving

pytest.importorskip("grpc")
pytest.importorskip("tritonclient.grpc")

import grpc
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2 as theirs

from bslite.serve.rpc.listener import listening

Code = grpc.StatusCode
INFER = "/inference.GRPCInferenceService/ModelInfer"
X = noise(3, 8)


@contextmanager
def by_grpc(running: Running) -> Iterator[str]:
    """The address at which the same service answers gRPC, on the same event loop."""
    assert running.client.portal is not None
    with running.client.portal.wrap_async_context_manager(listening(running.service)) as port:
        yield f"127.0.0.1:{port}"


class Client:
    """A running service, tritonclient's client of it, and a channel for what that client does not send."""

    def __init__(self, running: Running, address: str) -> None:
        self.running, self.address = running, address
        self.triton = triton.InferenceServerClient(address)
        self.channel = grpc.insecure_channel(address)

    def infer(self, name: str, x: np.ndarray, **more: Any) -> np.ndarray:
        """The model's first output for one input x, by tritonclient."""
        sent = triton.InferInput("x", list(x.shape), "FP32")
        sent.set_data_from_numpy(x)
        made = self.triton.infer(name, [sent], **more)
        return np.asarray(made.as_numpy(made.get_response().outputs[0].name))

    def call(self, request: Any, **more: Any) -> Any:
        """ModelInfer with a message, or with bytes."""
        raw = request if isinstance(request, bytes) else request.SerializeToString()
        return theirs.ModelInferResponse.FromString(self.channel.unary_unary(INFER)(raw, timeout=20, **more))

    def close(self) -> None:
        self.triton.close()
        self.channel.close()


@contextmanager
def client_of(*models: Any, **more: Any) -> Iterator[Client]:
    with serving(*models, **more) as running, by_grpc(running) as address:
        made = Client(running, address)
        yield made
        made.close()


def refusal(call: Callable[[], Any]) -> tuple[Any, str, dict[str, str]]:
    """Code, message and trailing metadata of what ``call`` is refused with."""
    with pytest.raises((grpc.RpcError, triton.InferenceServerException)) as refused:
        call()
    error = refused.value
    if isinstance(error, grpc.RpcError):
        return error.code(), error.details(), dict(error.trailing_metadata())
    return next(c for c in Code if str(c) == error.status()), error.message(), {}


def message(x: np.ndarray = X, to: str = "net", **more: Any) -> Any:
    """A request with the bytes of one input; ``more``: fields of the input."""
    made = theirs.ModelInferRequest(model_name=to, raw_input_contents=[x.tobytes()])
    made.inputs.add(**{"name": "x", "datatype": "FP32", "shape": x.shape, **more})
    return made
