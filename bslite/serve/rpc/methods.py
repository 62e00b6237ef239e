"""The methods of the protocol's gRPC service."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias, TypeVar
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError

from bslite.serve.model import VERSION
from bslite.serve.problem import GONE, Problem
from bslite.serve.record import Record
from bslite.serve.request import checked
from bslite.serve.rpc.messages import MESSAGES, PACKAGE
from bslite.serve.rpc.tensors import document, results
from bslite.serve.service import Service

#: HTTP's status -> gRPC's code.
CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    500: grpc.StatusCode.INTERNAL,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
MOST = 500  # characters of a message: it travels in headers, of which a client takes 8 KiB
PROBES = ("ServerLive", "ServerReady")  # too many to log, and asked by what has no key
T = TypeVar("T")
#: A request's message to the fields of its response's.
Method: TypeAlias = Callable[[Any, Record], Awaitable[dict[str, Any]]]


class Methods:
    """What a service answers, by gRPC."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def handler(self) -> grpc.GenericRpcHandler:
        """All methods, for a server. Each is handled as if both sides could send several messages, which is
        the same on the wire: so it is here that a message is read and sent, within a time.
        """
        methods: dict[str, Method] = {
            "ServerLive": self._live,
            "ServerReady": self._ready,
            "ModelReady": self._model_ready,
            "ServerMetadata": self._server,
            "ModelMetadata": self._model,
            "ModelInfer": self._infer,
        }
        handlers = {
            name: grpc.stream_stream_rpc_method_handler(partial(self._call, name, method))
            for name, method in methods.items()
        }
        return grpc.method_handlers_generic_handler(f"{PACKAGE}.GRPCInferenceService", handlers)

    async def _call(self, name: str, method: Method, _: Any, context: Any) -> None:
        client = unquote(context.peer().partition(":")[2])
        record = Record(client, f"gRPC {name}", infers=name == "ModelInfer")
        with self._service.gate.passing(record, logged=name not in PROBES):
            try:
                with self._service.refusing():
                    await self._answer(name, method, record, context)
                record.status = 200
                return
            except Problem as e:
                problem, record.status, record.error = e, e.status, e.message
            except asyncio.CancelledError:
                late = context.time_remaining() == 0
                record.status = 504 if late else GONE
                record.error = "the client's deadline has passed" if late else "the client has gone"
                raise
        after = problem.headers.get("Retry-After")
        trailing = () if after is None else (("retry-after", after),)
        await context.abort(CODES[problem.status], problem.message[:MOST], trailing)

    async def _answer(self, name: str, method: Method, record: Record, context: Any) -> None:
        if name not in PROBES:
            told = dict(context.invocation_metadata())
            self._service.gate.check_key(*(told.get(k, "").encode() for k in ("authorization", "x-api-key")))
        if (left := context.time_remaining()) is not None:
            record.limit = left
        raw = await self._in_time(context.read(), "the request did not arrive")
        if raw is grpc.aio.EOF:
            most = self._service.settings.max_body
            raise Problem(400, f"there is no message, or one that has more than {most} bytes")
        with self._service.bodies.share() as share:
            share.take(len(raw))
            record.taken = share.taken
            try:
                asked = MESSAGES[f"{name}Request"].FromString(raw)
            except DecodeError as e:
                raise Problem(400, f"the request is no {name}Request: {e}") from None
            del raw  # the message has its own copy
            answer = MESSAGES[f"{name}Response"](**await method(asked, record)).SerializeToString()
        await self._in_time(context.write(answer), "the answer was not taken")
        record.given = len(answer)

    async def _in_time(self, doing: Awaitable[T], what: str) -> T:
        limit = self._service.settings.read_timeout
        try:
            return await asyncio.wait_for(doing, limit)
        except asyncio.TimeoutError:
            raise Problem(408, f"{what} within {limit:g} s") from None

    async def _live(self, asked: Any, record: Record) -> dict[str, Any]:
        return {"live": True}

    async def _ready(self, asked: Any, record: Record) -> dict[str, Any]:
        return {"ready": self._service.ready}

    async def _model_ready(self, asked: Any, record: Record) -> dict[str, Any]:
        return {"ready": self._service.takes(self._service.found(asked.name, asked.version or VERSION))}

    async def _server(self, asked: Any, record: Record) -> dict[str, Any]:
        return self._service.metadata()

    async def _model(self, asked: Any, record: Record) -> dict[str, Any]:
        return self._service.found(asked.name, asked.version or VERSION).metadata()

    async def _infer(self, asked: Any, record: Record) -> dict[str, Any]:
        model = self._service.found(asked.model_name, asked.model_version or VERSION)
        record.model = model.name
        self._service.check(model)
        inferred = checked(document(asked), model.inputs, model.outputs)
        return results(model, inferred, await self._service.infer(record, model, inferred))
