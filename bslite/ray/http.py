"""HTTP requests to a replica, by the Open Inference Protocol (V2), with the codec of `bslite.serve`."""

from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from bslite.compiled import CompiledModel
from bslite.errors import BsliteError, InputError
from bslite.serve.answer import answer, as_json, refusal
from bslite.serve.model import VERSION, Served
from bslite.serve.problem import Problem
from bslite.serve.request import HEADER_LENGTH, parse

SERVER = {"name": "bslite", "version": version("bslite"), "extensions": ["binary_tensor_data"]}


class Protocol:
    """The protocol's addresses for a model, below the application's route; ``compute``: arrays to results."""

    def __init__(
        self, name: str, model: CompiledModel, compute: Callable[[list[Any]], Awaitable[Mapping[str, Any]]]
    ) -> None:
        self._model, self._compute = Served(name, model), compute

    async def __call__(self, request: Request) -> Response:
        """The answer; what is wrong with the request is one, too."""
        path = request.url.path.removeprefix(request.scope.get("root_path", "")).strip("/")
        try:
            return await self._answer(request, path)
        except Problem as e:
            return refusal(e)
        except InputError as e:
            return refusal(Problem(400, str(e)))
        except BsliteError as e:
            return refusal(Problem(500, str(e)))

    async def _answer(self, request: Request, path: str) -> Response:
        name = self._model.name
        if path.startswith("v2/models/"):
            found, _, rest = path.removeprefix("v2/models/").partition("/")
            if found != name:
                raise Problem(404, f"there is no model {found!r}; there is {name!r}")
            path = "/".join(("v2/models", rest.removeprefix(f"versions/{VERSION}").strip("/"))).rstrip("/")
        told = {
            "v2": SERVER,
            "v2/health/live": {"live": True},
            "v2/health/ready": {"ready": True},  # Serve sends no request to a replica that is not
            "v2/models": self._model.metadata(),
            "v2/models/ready": {"name": name, "ready": True},
        }
        wanted = {"v2/models/infer": "POST"} | dict.fromkeys(told, "GET")
        if path not in wanted:
            raise Problem(404, f"there is nothing at {request.url.path}")
        if request.method != wanted[path]:
            raise Problem(405, f"{request.url.path} takes {wanted[path]}", {"Allow": wanted[path]})
        if path in told:
            return as_json(told[path])
        model, length = self._model, request.headers.get(HEADER_LENGTH)
        asked = parse(await request.body(), length, model.inputs, model.outputs)
        return answer(name, VERSION, asked, model.outputs, await self._compute(asked.arrays))
