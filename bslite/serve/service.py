"""`Service`: models behind one queue, whichever way their requests come."""

import asyncio
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

from bslite.errors import BsliteError, InputError, SpecError
from bslite.serve.body import Bodies
from bslite.serve.gate import Gate
from bslite.serve.log import write
from bslite.serve.metrics import Metrics
from bslite.serve.model import VERSION, Served
from bslite.serve.problem import GONE, Problem
from bslite.serve.record import Record
from bslite.serve.request import InferRequest
from bslite.serve.scheduler import Scheduler
from bslite.serve.settings import Settings
from bslite.serve.warm import warm
from bslite.spec import Array


class Service:
    """What an application answers for.

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
        self.gate = Gate(settings.keys, self.metrics, settings.access_log, out)
        self.bodies, self._out = Bodies(settings), out

    def warm(self, on_ready: Callable[[Served], None], same: Callable[[Array, Array], bool]) -> None:
        """Make every model ready, one after the other. Blocks; not to be called on the event loop."""
        for model in self.models.values():
            warm(model, self.settings, self.pool, same)
            on_ready(model)

    async def drain(self) -> None:
        """Refuse new requests; return when those under way are answered."""
        self.draining = True
        while self.gate.in_flight:
            await asyncio.sleep(0.01)

    def close(self) -> None:
        """Let go of threads and models."""
        self.pool.shutdown(wait=True, cancel_futures=True)
        for model in self.models.values():
            model.compiled.close()

    def takes(self, *models: Served) -> bool:
        """Whether requests are taken for these models."""
        return not self.draining and all(model.ready for model in models)

    @property
    def ready(self) -> bool:
        """Whether requests are taken for every model."""
        return self.takes(*self.models.values())

    def metadata(self) -> dict[str, Any]:
        """What the protocol tells of a server."""
        extensions = ["binary_tensor_data", "model_repository"]
        return {"name": "bslite", "version": version("bslite"), "extensions": extensions}

    def found(self, name: str, version: str = VERSION) -> Served:
        """A model. Problem 404 if there is none of this name and version."""
        if name not in self.models:
            raise Problem(404, f"there is no model {name!r}; there are {', '.join(map(repr, self.models))}")
        if version != VERSION:
            raise Problem(404, f"model {name!r} has no version {version!r}; it has {VERSION!r}")
        return self.models[name]

    def check(self, model: Served) -> None:
        """Problem 503 or 429 if no request is taken for ``model`` now."""
        if self.draining:
            raise Problem(503, "the server is stopping", {"Retry-After": "1", "Connection": "close"})
        if not model.ready:
            raise Problem(503, f"model {model.name!r} is not ready yet", {"Retry-After": "1"})
        self.scheduler.check_room()

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Whatever is raised inside leaves as a Problem; what nobody expects is logged."""
        try:
            yield
        except Problem:
            raise
        except (InputError, SpecError) as e:  # the second where a layer cannot take the shapes that came
            raise Problem(400, str(e)) from e
        except BsliteError as e:
            raise Problem(500, str(e)) from e
        except Exception as e:
            self._out(traceback.format_exc())
            raise Problem(500, f"the run failed: {type(e).__name__}") from e

    async def infer(
        self, record: Record, model: Served, asked: InferRequest, gone: "asyncio.Future[Any] | None" = None
    ) -> dict[str, Any]:
        """A request's results by name. Raises what its run does; Problem 504 when its time is up, 499 when
        ``gone`` is done. A request whose answer nobody waits for any more leaves the queue.
        """
        record.id = asked.id
        limit = min(self.settings.timeout, record.limit, asked.timeout or self.settings.timeout)
        job = record.job = self.scheduler.submit(model, asked.arrays)
        waited: set[asyncio.Future[Any]] = {job.future} if gone is None else {job.future, gone}
        try:
            left = record.start + limit - time.perf_counter()
            done, _ = await asyncio.wait(waited, timeout=max(0.0, left), return_when=asyncio.FIRST_COMPLETED)
            if job.future in done:
                return job.future.result()
            if done:
                raise Problem(GONE, "the client has gone")
            raise Problem(504, f"there was no answer within {limit:.3g} s")
        finally:
            self.scheduler.give_up(job)
