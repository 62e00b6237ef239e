"""The server that is measured, in a process of its own, with bslite or onnxruntime behind it."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import origin, rivals
from bslite.spec import Array

OURS, RIVAL = "bslite", "onnxruntime"
ENGINES = (OURS, RIVAL)
CLOSE = 1e-4  # the most that answers of onnxruntime may differ, relative


@dataclass(frozen=True)
class Case:
    """A server: what computes, how many runs at a time with how many threads, and the rows of a batch at
    most.
    """

    engine: str
    streams: int
    threads: int
    max_batch: int

    def __str__(self) -> str:
        batches = "batches" if self.max_batch > 1 else "no batches"
        return f"{self.engine}, {self.streams}×{self.threads}, {batches}"


class OnnxRuntime:
    """onnxruntime where a CompiledModel is expected. Ports and examples are those that bslite reads."""

    pieces = ("engine: onnxruntime",)

    def __init__(self, path: str, threads: int) -> None:
        from bslite.onnx.model import OnnxModel

        self._session = rivals.onnxruntime_session(path, threads)
        self._bslite_model = OnnxModel(path)
        self.inputs, self.outputs = self._bslite_model.inputs, self._bslite_model.outputs

    def __call__(self, given: Mapping[str, Any]) -> dict[str, Any]:
        made = self._session.run(None, dict(given))
        return dict(zip([p.name for p in self.outputs], made, strict=True))

    def close(self) -> None:
        """Nothing: it goes with the process."""


def close(a: Array, b: Array) -> bool:
    """Whether two answers differ by rounding alone."""
    return a.shape == b.shape and bool(np.linalg.norm(a - b) <= CLOSE * np.linalg.norm(b))


def work(path: str, queue: int, case: Mapping[str, Any]) -> None:
    """Serve until SIGTERM; print the port and the price of batches once all is warm."""
    import bslite
    from bslite.compiled.together import identical
    from bslite.serve.model import Served
    from bslite.serve.server import listen, serve
    from bslite.serve.service import Service
    from bslite.serve.settings import Settings

    made = Case(**case)
    ours = made.engine == OURS
    compiled: Any = (
        bslite.compile(path, threads=made.threads, streams=made.streams)
        if ours
        else OnnxRuntime(path, made.threads)
    )
    settings = Settings(
        port=0, streams=made.streams, threads=made.threads, max_batch=made.max_batch, max_queue=queue,
        access_log=False,
    )  # fmt: skip
    sock = listen(settings)
    port = sock.getsockname()[1]

    def ready(model: Served) -> None:
        price = {str(rows): seconds for rows, seconds in model.price.seconds.items()}
        told = {"port": port, "alone": model.alone, "price": price, "most": model.price.most}
        print(json.dumps(told), flush=True)

    service = Service([Served("net", compiled, Path(path))], settings)
    # onnxruntime's rows need not have the same bits in a batch: it is measured as others would serve with it.
    serve(service, sock, ready, identical if ours else close)


class Serving:
    """A server process, warm: its port, and what it learnt while warming."""

    def __init__(self, path: Path, case: Case, queue: int) -> None:
        order = json.dumps({"path": str(path), "queue": queue, "case": asdict(case)})
        command = [sys.executable, "-m", "benchmarks.serving", "--worker", order]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=origin.ROOT)
        watch = threading.Timer(120, self.process.kill)  # it must not hang
        watch.start()
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        watch.cancel()
        if not line:
            raise RuntimeError(f"the server of {case} ended, exit code {self.process.wait()}")
        told = json.loads(line)
        self.port, self.most = int(told["port"]), int(told["most"])
        self.price: dict[str, float] = told["price"]

    def cpu(self) -> float:
        """Seconds of CPU that the process has taken."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def serving(path: Path, case: Case, queue: int) -> Iterator[Serving]:
    """A server, which is told to stop at the end, and made to if it does not."""
    made = Serving(path, case, queue)
    try:
        yield made
    finally:
        made.process.send_signal(signal.SIGTERM)
        try:
            made.process.wait(30)
        except subprocess.TimeoutExpired:
            made.process.kill()
            made.process.wait()
        assert made.process.stdout is not None
        made.process.stdout.close()
