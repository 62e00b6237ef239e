"""The gate in front of the application."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bslite.serve.answer import refusal
from bslite.serve.gate import Gate
from bslite.serve.problem import Problem
from bslite.serve.record import KEY, Record

PROBES = ("/v2/health/live", "/v2/health/ready", "/metrics")  # too many to log
OPEN = ("/v2/health/live", "/v2/health/ready")  # asked by what has no key: an orchestrator's probes


class Guard:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app, self._gate = app, gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        client = scope.get("client") or ("", 0)
        record = scope[KEY] = Record(f"{client[0]}:{client[1]}", f"{scope['method']} {scope['path'][:200]}")

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
            elif message["type"] == "http.response.body":
                record.given += len(message.get("body", b""))
            await send(message)

        with self._gate.passing(record, logged=scope["path"] not in PROBES):
            try:
                if scope["path"] not in OPEN:
                    headers = dict(scope["headers"])
                    self._gate.check_key(headers.get(b"authorization", b""), headers.get(b"x-api-key", b""))
            except Problem as wrong:
                record.error = wrong.message
                await refusal(wrong)(scope, receive, sending)
            else:
                await self._app(scope, receive, sending)
