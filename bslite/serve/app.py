"""The application: the protocol's addresses, answered."""

import asyncio
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from bslite.errors import BsliteError, InputError
from bslite.serve.answer import answer, as_json, refusal
from bslite.serve.body import Bodies
from bslite.serve.guard import Guard
from bslite.serve.metrics import TYPE, Metrics
from bslite.serve.model import VERSION, Served
from bslite.serve.problem import Problem
from bslite.serve.record import KEY, Record, write
from bslite.serve.request import HEADER_LENGTH, InferRequest, parse
from bslite.serve.scheduler import Job, Scheduler
from bslite.serve.settings import Settings
from bslite.serve.warm import warm
from bslite.spec import Array

GONE = 499  # nginx's number for a client that did not wait for its answer; only the log sees it


class Service:
    """Models behind one queue, and the application (``app``) that answers for them.

    A server calls `warm` once it listens, and `drain` when it is to stop.
    """

    def __init__(
        self, models: Sequence[Served], settings: Settings, out: Callable[[str], None] = write
    ) -> None:
        self.models = {model.name: model for model in models}
        self.settings = settings
        self.draining = False
        self.pool = ThreadPoolExecutor(settings.streams, "bslite-run")
        self.metrics = Metrics(list(self.models), lambda name: self.scheduler.depth(name))
        self.scheduler = Scheduler(settings, self.pool, self.metrics.ran)
        self._bodies, self._out = Bodies(settings), out
        self.app = Guard(self._starlette(), settings.keys, self.metrics, settings.access_log, out)

    def warm(self, on_ready: Callable[[Served], None], same: Callable[[Array, Array], bool]) -> None:
        """Make every model ready, one after the other. Blocks; not to be called on the event loop."""
        for model in self.models.values():
            warm(model, self.settings, self.pool, same)
            on_ready(model)

    async def drain(self) -> None:
        """Refuse new requests; return when those under way are answered."""
        self.draining = True
        while self.app.in_flight:
            await asyncio.sleep(0.01)

    def close(self) -> None:
        """Let go of threads and models."""
        self.pool.shutdown(wait=True, cancel_futures=True)
        for model in self.models.values():
            model.compiled.close()

    @property
    def ready(self) -> bool:
        """Whether requests are taken for every model."""
        return not self.draining and all(model.ready for model in self.models.values())

    def _starlette(self) -> Starlette:
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
        return as_json({"ready": self.ready}, 200 if self.ready else 503)

    async def _server(self, request: Request) -> Response:
        return as_json(
            {
                "name": "bslite",
                "version": version("bslite"),
                "extensions": ["binary_tensor_data", "model_repository"],
            }
        )

    async def _metrics(self, request: Request) -> Response:
        return Response(self.metrics.text(), media_type=TYPE)

    async def _index(self, request: Request) -> Response:
        listed = [
            {"name": m.name, "version": VERSION, "state": "READY" if m.ready else "LOADING", "reason": ""}
            for m in self.models.values()
        ]
        return as_json(listed)

    async def _model(self, request: Request) -> Response:
        return as_json(self._found(request).metadata())

    async def _model_ready(self, request: Request) -> Response:
        model = self._found(request)
        ready = model.ready and not self.draining
        return as_json({"name": model.name, "ready": ready}, 200 if ready else 503)

    def _found(self, request: Request) -> Served:
        name, version = request.path_params["model"], request.path_params.get("version", VERSION)
        if name not in self.models:
            raise Problem(404, f"there is no model {name!r}; there are {', '.join(map(repr, self.models))}")
        if version != VERSION:
            raise Problem(404, f"model {name!r} has no version {version!r}; it has {VERSION!r}")
        return self.models[name]

    async def _infer(self, request: Request) -> Response:
        record: Record = request.scope[KEY]
        record.infers = True
        model = self._found(request)
        record.model = model.name
        if self.draining:
            raise Problem(503, "the server is stopping", {"Retry-After": "1", "Connection": "close"})
        if not model.ready:
            raise Problem(503, f"model {model.name!r} is not ready yet", {"Retry-After": "1"})
        self.scheduler.check_room()  # before the body is read
        with self._bodies.share() as share:
            try:
                body = await share.read(request)
                record.taken = share.taken
                asked = parse(body, request.headers.get(HEADER_LENGTH), model.inputs, model.outputs)
                record.id = asked.id
                job = record.job = self.scheduler.submit(model, asked.arrays)
                made = await self._result(request, record, job, asked)
                return answer(model.name, VERSION, asked, model.outputs, made)
            except ClientDisconnect:
                record.error = "the client has gone"
                return Response(status_code=GONE)
            except InputError as e:
                raise Problem(400, str(e)) from e
            except BsliteError as e:
                raise Problem(500, str(e)) from e
            except Problem:
                raise
            except Exception as e:
                self._out(traceback.format_exc())
                raise Problem(500, f"the run failed: {type(e).__name__}") from e

    async def _result(
        self, request: Request, record: Record, job: Job, asked: InferRequest
    ) -> dict[str, Any]:
        """The job's results, while the client waits for them and its time is not up."""
        limit = min(self.settings.timeout, asked.timeout or self.settings.timeout)
        gone: asyncio.Future[Any] = asyncio.ensure_future(_gone(request))
        try:
            left = record.start + limit - time.perf_counter()
            done, _ = await asyncio.wait(
                {job.future, gone}, timeout=max(0.0, left), return_when=asyncio.FIRST_COMPLETED
            )
            if job.future in done:
                return job.future.result()
            if gone in done:
                raise ClientDisconnect
            raise Problem(504, f"there was no answer within {limit:g} s")
        finally:
            gone.cancel()
            self.scheduler.give_up(job)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _refused(request: Request, problem: Problem) -> Response:
    request.scope[KEY].error = problem.message
    return refusal(problem)


async def _http_error(request: Request, error: HTTPException) -> Response:
    return await _refused(request, Problem(error.status_code, str(error.detail), error.headers))
