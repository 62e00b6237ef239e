"""What the access log says of a request: one JSON object a line."""

import json
import math
import time
from dataclasses import dataclass, field
from typing import Any

from bslite.serve.scheduler import Job

KEY = "bslite.record"  # in an ASGI scope


@dataclass
class Record:
    """What is known of a request so far. ``limit``: seconds that its client gives it, from ``start``."""

    client: str
    request: str
    start: float = field(default_factory=time.perf_counter)
    limit: float = math.inf
    model: str = ""
    id: str | None = None
    job: Job | None = None
    status: int = 0
    taken: int = 0  # bytes of the body
    given: int = 0  # bytes of the answer
    error: str = ""
    infers: bool = False

    def line(self, seconds: float) -> str:
        """One line. Everything a client said is in JSON's quotes: it cannot begin a line of its own."""
        told: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "client": self.client,
            "request": self.request,
            "status": self.status,
            "ms": round(1e3 * seconds, 3),
            "in": self.taken,
            "out": self.given,
        }
        if self.model:
            told["model"] = self.model
        if self.id:
            told["id"] = self.id[:100]
        if self.job is not None and self.job.ended:
            job = self.job
            told["queue_ms"] = round(1e3 * (job.started - job.arrived), 3)
            told["run_ms"] = round(1e3 * (job.ended - job.started), 3)
            told["rows"], told["batch"] = job.rows, job.batch
        if self.error:
            told["error"] = self.error[:500]
        return json.dumps(told)
