"""`Replica`: what one replica of a deployment does."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

from ray import serve
from starlette.requests import Request
from starlette.responses import Response

from bslite.api import of_tensors
from bslite.compiled.arguments import ordered
from bslite.compiled.outputs import Outputs
from bslite.compiled.rows import Rows
from bslite.errors import BsliteError, SpecError
from bslite.ray.batching import Batching
from bslite.ray.http import Protocol
from bslite.ray.worker import opened
from bslite.spec import Array


class Replica:
    """A model that makes one call at a time, for as many requests as have come in the meantime."""

    def __init__(self, model: Any, threads: int | None, example: Mapping[str, Array] | None) -> None:
        self.model = opened(model, threads)
        self.names = [port.name for port in self.model.inputs]
        self.example = example
        self.batching = Batching()
        self.requests = self.batches = 0
        self._rows: Rows | None = None
        self._thread = ThreadPoolExecutor(1)  # beside Serve's own, which goes on taking requests

    def reconfigure(self, settings: Mapping[str, Any]) -> None:
        """Serve's ``user_config``, at the start and when it changes: settings of `Batching`."""
        batching = self.batching.changed(settings)
        if batching.max_batch_size > 1 and self._rows is None:
            try:
                self._rows = Rows(self.model, self.example)
            except SpecError as e:
                raise SpecError(f"{e}. With max_batch_size=1 requests are computed one by one") from None
        self.batching = batching
        self._joined.set_max_batch_size(batching.max_batch_size)
        self._joined.set_batch_wait_timeout_s(batching.batch_wait_timeout_s)

    async def __call__(self, *args: Any, **kwargs: Any) -> Outputs | Response:
        """The model's results, as `bslite.CompiledModel` gives them; InputError as there. To a request by
        HTTP, an answer in the form of the protocol.
        """
        if args and isinstance(args[0], Request):
            return await self._protocol(args[0])
        arrays, any_tensor = of_tensors(self.model.inputs, ordered(self.model.name, self.names, args, kwargs))
        made = await self._answer(arrays)
        if any_tensor:
            import torch

            return Outputs((name, torch.from_numpy(y)) for name, y in made.items())
        return made

    async def _answer(self, arrays: Sequence[Any]) -> Outputs:
        self.requests += 1
        if self._rows is None or _count(arrays) >= self.batching.max_batch_size:
            made: Outputs | BsliteError = await self._computed(lambda: self.model(*arrays))
        else:
            made = await self._joined(arrays)
        if isinstance(made, BsliteError):
            raise made
        return made

    @cached_property
    def _protocol(self) -> Protocol:
        """Made when the first request comes: not every model has datatypes of the protocol."""
        return Protocol(serve.get_replica_context().deployment, self.model, self._answer)

    def status(self) -> dict[str, Any]:
        """Its process, the requests it had, the batches that they made, and how it is threaded."""
        from bslite.engines.cpu.threads import decided

        return {
            "pid": os.getpid(),
            "requests": self.requests,
            "batches": self.batches,
            "threads": decided(self.model.threads),
            "memory": self.model.memory,
        }

    @serve.batch(batch_size_fn=lambda asked: sum(map(_count, asked)))
    async def _joined(self, asked: list[Sequence[Any]]) -> list[Any]:
        assert self._rows is not None
        return await self._computed(self._rows, asked)

    async def _computed(self, compute: Any, *arguments: Any) -> Any:
        self.batches += 1
        return await asyncio.get_running_loop().run_in_executor(self._thread, compute, *arguments)


def _count(arrays: Sequence[Any]) -> int:
    """The rows of a request by its first input; what is wrong with one is said when it is computed."""
    shape = getattr(arrays[0], "shape", ())
    return max(1, shape[0]) if shape else 1
