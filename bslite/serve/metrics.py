"""What Prometheus is told."""

from collections.abc import Callable, Sequence
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from bslite.serve.scheduler import Job

TYPE = CONTENT_TYPE_LATEST
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Figures by model, in a registry of their own. A model is one that is served: a client's words are no
    label.
    """

    def __init__(self, models: Sequence[str], depth: Callable[[str], int]) -> None:
        self._registry = registry = CollectorRegistry()
        label = ["model"]
        self._requests = Counter(
            "bslite_requests", "Requests answered, by HTTP status.", ["model", "status"], registry=registry
        )
        self._latency = Histogram(
            "bslite_request_seconds",
            "From a request's head to its answer.",
            label,
            buckets=SECONDS,
            registry=registry,
        )
        self._wait = Histogram(
            "bslite_queue_seconds",
            "From the queue's end to a run.",
            label,
            buckets=SECONDS,
            registry=registry,
        )
        self._compute = Histogram(
            "bslite_compute_seconds", "Of a run, which may be of several requests.", label, buckets=SECONDS,
            registry=registry,
        )  # fmt: skip
        self._rows = Histogram("bslite_batch_rows", "Rows of a run.", label, buckets=ROWS, registry=registry)
        self._shed = Counter("bslite_shed", "Requests refused with 429.", label, registry=registry)
        self._errors = Counter(
            "bslite_errors", "Requests answered with another error.", label, registry=registry
        )
        queue = Gauge("bslite_queue_depth", "Requests that wait for a run.", label, registry=registry)
        self._models = frozenset(models)
        for name in models:
            queue.labels(name).set_function(partial(depth, name))
            for each in (self._latency, self._wait, self._compute, self._rows, self._shed, self._errors):
                each.labels(name)

    def answered(self, model: str, status: int, seconds: float) -> None:
        """A request for inference was answered."""
        if model not in self._models:
            return
        self._requests.labels(model, str(status)).inc()
        self._latency.labels(model).observe(seconds)
        if status == 429:
            self._shed.labels(model).inc()
        elif status >= 400:
            self._errors.labels(model).inc()

    def ran(self, batch: Sequence[Job]) -> None:
        """A run has ended."""
        name = batch[0].model.name
        self._compute.labels(name).observe(batch[0].ended - batch[0].started)
        self._rows.labels(name).observe(batch[0].batch)
        for job in batch:
            self._wait.labels(name).observe(job.started - job.arrived)

    def text(self) -> bytes:
        """In Prometheus's text format."""
        return generate_latest(self._registry)
