"""The application: the protocol's addresses over HTTP, answered."""

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bslite.serve.answer import answer, as_json, refusal
from bslite.serve.guard import Guard
from bslite.serve.metrics import TYPE
from bslite.serve.model import VERSION, Served
from bslite.serve.problem import Problem
from bslite.serve.record import KEY, Record
from bslite.serve.request import HEADER_LENGTH, parse
from bslite.serve.service import Service


def application(service: Service) -> Guard:
    """The ASGI application that answers for a service."""
    return Guard(_Addresses(service).starlette(), service.gate)


class _Addresses:
    """What is answered at each address."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def starlette(self) -> Starlette:
        base = "/v2/models/{model}"
        both = (base, base + "/versions/{version}")
        routes = [
            Route(f"{each}/infer", self._infer, methods=["POST"]) for each in both
        ]  # the usual ones first
        routes += [
            Route("/v2", self._server),
            Route("/v2/health/live", self._live),
            Route("/v2/health/ready", self._ready),
            Route("/v2/repository/index", self._index, methods=["POST"]),
            Route("/metrics", self._metrics),
        ]
        for each in both:
            routes += [Route(each, self._model), Route(f"{each}/ready", self._model_ready)]
        handlers: Mapping[Any, Any] = {Problem: _refused, HTTPException: _http_error}
        return Starlette(routes=routes, exception_handlers=handlers)

    async def _live(self, request: Request) -> Response:
        return as_json({"live": True})

    async def _ready(self, request: Request) -> Response:
        ready = self._service.ready
        return as_json({"ready": ready}, 200 if ready else 503)

    async def _server(self, request: Request) -> Response:
        return as_json(self._service.metadata())

    async def _metrics(self, request: Request) -> Response:
        return Response(self._service.metrics.text(), media_type=TYPE)

    async def _index(self, request: Request) -> Response:
        listed = [
            {"name": m.name, "version": VERSION, "state": "READY" if m.ready else "LOADING", "reason": ""}
            for m in self._service.models.values()
        ]
        return as_json(listed)

    async def _model(self, request: Request) -> Response:
        return as_json(self._found(request).metadata())

    async def _model_ready(self, request: Request) -> Response:
        model = self._found(request)
        ready = self._service.takes(model)
        return as_json({"name": model.name, "ready": ready}, 200 if ready else 503)

    def _found(self, request: Request) -> Served:
        return self._service.found(request.path_params["model"], request.path_params.get("version", VERSION))

    async def _infer(self, request: Request) -> Response:
        record: Record = request.scope[KEY]
        record.infers = True
        model = self._found(request)
        record.model = model.name
        self._service.check(model)  # before the body is read
        with self._service.bodies.share() as share, self._service.refusing():
            body = await share.read(request)
            record.taken = share.taken
            asked = parse(body, request.headers.get(HEADER_LENGTH), model.inputs, model.outputs)
            gone: asyncio.Future[Any] = asyncio.ensure_future(_gone(request))
            try:
                made = await self._service.infer(record, model, asked, gone)
            finally:
                gone.cancel()
            return answer(model.name, VERSION, asked, model.outputs, made)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _refused(request: Request, problem: Problem) -> Response:
    request.scope[KEY].error = problem.message
    return refusal(problem)


async def _http_error(request: Request, error: HTTPException) -> Response:
    return await _refused(request, Problem(error.status_code, str(error.detail), error.headers))
