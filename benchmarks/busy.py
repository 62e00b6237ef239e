"""A busy machine: how long calls take beside processes that compute all the time.

``python -m benchmarks.busy`` runs small networks in bslite, in bslite where torch is imported, in onnxruntime
and in OpenVINO. Each engine has a process of its own, which sleeps while another one has its turn.
"""

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import origin, output, rivals
from benchmarks.tables import geometric_mean, ms, ratio, table
from bslite.spec import Array

OURS, WITH_TORCH, ORT, OPENVINO = "bslite", "bslite, torch imported", "onnxruntime", "openvino"
RIVALS = (ORT, OPENVINO)
ENGINES = (OURS, WITH_TORCH, *RIVALS)
NICE = 10  # of a niced process
CLOSE = 1e-4  # the most that answers may differ, relative


def _linears() -> tuple[Any, tuple[int, ...]]:
    import torch

    layers = [torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(256, 10)), (8, 256)


def _vision(name: str, side: int) -> tuple[Any, tuple[int, ...]]:
    from benchmarks.peers import nets

    return nets.module(name, 0), (1, 3, side, side)


NETWORKS = {
    "three linear layers, batch 8": _linears,
    "mobilenet_v2, 64 x 64": lambda: _vision("mobilenet_v2", 64),
    "mobilenet_v2, 224 x 224": lambda: _vision("mobilenet_v2", 224),
    "squeezenet1_1, 224 x 224": lambda: _vision("squeezenet1_1", 224),
    "efficientnet_b0, 96 x 96": lambda: _vision("efficientnet_b0", 96),
    "resnet18, 224 x 224": lambda: _vision("resnet18", 224),
}


@dataclass
class Result:
    """Seconds of calls of one network beside so many busy processes, by engine: mean and 99th percentile,
    medians over the rounds.
    """

    name: str
    busy: int
    niced: bool
    mean: dict[str, float] = field(default_factory=dict)
    late: dict[str, float] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


class Worker:
    """An engine with a model in a process of its own, which computes only when told to."""

    def __init__(self, engine: str, model: Path, threads: int, niced: bool) -> None:
        case = {"engine": engine, "model": str(model), "threads": threads, "niced": niced}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.busy", "--worker", json.dumps(case)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=origin.ROOT,
        )  # fmt: skip
        self.answer = np.array(self._read()["answer"], np.float32)

    def times(self, seconds: float) -> list[float]:
        """Seconds of each call in the later half of a block."""
        assert self._process.stdin is not None
        print(seconds, file=self._process.stdin, flush=True)
        taken: list[float] = self._read()["taken"]
        return taken

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a worker ended, exit code {self._process.wait()}")
        return json.loads(line)

    def end(self) -> None:
        """Let the process go."""
        self._process.kill()
        self._process.wait()


def work(engine: str, model: str, threads: int, niced: bool) -> None:
    """What a worker does: answer once, then a block of calls for each line on standard input."""
    if niced:
        os.nice(NICE)
    call = _call(engine, model, threads)
    print(json.dumps({"answer": call().ravel().tolist()}), flush=True)
    for line in sys.stdin:
        end = time.perf_counter() + float(line)
        taken: list[float] = []
        while not taken or time.perf_counter() < end:
            start = time.perf_counter()
            call()
            taken.append(time.perf_counter() - start)
        print(json.dumps({"taken": taken[len(taken) // 2 :]}), flush=True)


def _call(engine: str, model: str, threads: int) -> Any:
    x = np.load(Path(model).with_suffix(".npy"))
    if engine == ORT:
        session = rivals.onnxruntime_session(model, threads)
        feed = {session.get_inputs()[0].name: x}
        return lambda: session.run(None, feed)[0]
    if engine == OPENVINO:
        import openvino as ov

        settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32",
                    "PERFORMANCE_HINT": "LATENCY"}  # fmt: skip
        theirs = ov.Core().compile_model(model, "CPU", settings)
        return lambda: theirs(x)[0]
    if engine == WITH_TORCH:
        import torch

        torch.set_num_threads(threads)
        torch.rand(1 << 20).exp()  # its threads are there
    import bslite

    compiled = bslite.compile(model, threads=threads)
    return lambda: compiled(x)[0]


@contextlib.contextmanager
def hogs(count: int) -> Iterator[None]:
    """So many processes that compute all the time."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def compared(
    name: str, folder: Path, engines: Sequence[str], loads: Sequence[tuple[int, bool]], options: Any
) -> Iterator[Result]:
    """A network's calls under each load (busy processes, niced), engine after engine in random order."""
    model, order = _exported(name, folder), random.Random(0)
    for niced in dict.fromkeys(niced for _, niced in loads):
        workers = {e: Worker(e, model, options.threads, niced) for e in engines}
        try:
            wrong = _wrong(workers)
            for busy in (count for count, as_niced in loads if as_niced == niced):
                result = Result(name, busy, niced, failures=wrong)
                taken: dict[str, list[list[float]]] = {engine: [] for engine in workers}
                with hogs(busy):
                    for _ in range(options.rounds):
                        for engine in order.sample(list(workers), len(workers)):
                            taken[engine].append(workers[engine].times(options.seconds))
                for engine, rounds in taken.items():
                    result.mean[engine] = statistics.median(map(statistics.fmean, rounds))
                    result.late[engine] = statistics.median(float(np.quantile(r, 0.99)) for r in rounds)
                yield result
        finally:
            for worker in workers.values():
                worker.end()


def _wrong(workers: dict[str, Worker]) -> dict[str, str]:
    """Which of the others departs from the first one's answer."""
    first, *others = workers
    want: Array = workers[first].answer
    size = float(np.linalg.norm(want))
    return {
        other: f"its answer is not that of {first}"
        for other in others
        if not np.linalg.norm(workers[other].answer - want) <= CLOSE * size
    }


def _exported(name: str, folder: Path) -> Path:
    """The network as an ONNX file, its input beside it."""
    import torch

    module, shape = NETWORKS[name]()
    path = folder / f"{list(NETWORKS).index(name)}.onnx"
    x = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    torch.onnx.export(module.eval(), (x,), str(path), dynamo=True, external_data=False, verbose=False)
    np.save(path.with_suffix(".npy"), x.numpy())
    return path


def markdown(results: Sequence[Result], limits: Any, header: dict[str, Any]) -> str:
    """A table for usual and one for niced processes."""
    engines = header["options"]["engines"]
    parts = [
        _table([r for r in results if r.niced == niced], niced, engines, header)
        for niced in dict.fromkeys(r.niced for r in results)
    ]
    said = (
        "Milliseconds a call, mean and 99th percentile, medians of rounds in random order, beside processes "
        "that compute all the time. `ratio`: the mean of the best rival over that of bslite, above 1 bslite "
        "is faster."
    )
    failures = output.failed(results, lambda r: f"{r.name}, {r.busy} busy")
    return output.document(*parts, said, failures, output.where(header))


def _table(results: Sequence[Result], niced: bool, engines: Sequence[str], header: dict[str, Any]) -> str:
    rivals = [e for e in engines if e in RIVALS]
    ours = [e for e in engines if rivals and e not in rivals]
    head = ["network", "busy", *engines, *(f"ratio of {e}" for e in ours)]
    rows = [
        [r.name, str(r.busy), *(f"{ms(r.mean[e], 2)}, {ms(r.late[e], 2)}" for e in engines),
         *(ratio(_ahead(r, e, rivals)) for e in ours)]
        for r in results
    ]  # fmt: skip
    means = [geometric_mean([_ahead(r, e, rivals) for r in results]) for e in ours]
    rows.append(["geometric mean", *[""] * (len(engines) + 1), *map(ratio, means)])
    how = f"niced by {NICE}" if niced else "usual priority"
    return f"**{how}, {header['options']['threads']} thread(s)**\n\n{table(head, rows)}"


def _ahead(result: Result, engine: str, rivals: Sequence[str]) -> float:
    return min(result.mean[rival] for rival in rivals) / result.mean[engine]


def main(arguments: list[str] | None = None) -> int:
    """Measure and print tables. The exit code is 1 if an answer is wrong."""
    parser = output.parser("busy", __doc__)
    parser.add_argument(
        "--networks", nargs="+", choices=list(NETWORKS), default=list(NETWORKS), metavar="NAME"
    )
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 1, 2, 4], help="busy processes beside it")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5, help="that a block lasts; half of it counts")
    output.choice(parser, "--engines", ENGINES)
    output.add_options(parser, plot=False)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        work(**json.loads(options.worker))
        return 0
    run = output.Run("busy", options, output.as_dict, markdown)
    loads = [(count, niced) for niced in (False, True) for count in options.busy]
    with tempfile.TemporaryDirectory() as folder:
        for name in options.networks:
            for result in compared(name, Path(folder), options.engines, loads, options):
                said = ", ".join(f"{e} {ms(result.mean[e], 2)}" for e in options.engines)
                run.add(result, f"{name}, {result.busy} busy{', niced' if result.niced else ''}: {said}")
    run.finish()
    return int(any(r.failures for r in run.results))


if __name__ == "__main__":
    sys.exit(main())
