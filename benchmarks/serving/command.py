"""Serving: what a server answers, how late, and at what cost, under loads up to three times what it can do.

``python -m benchmarks.serving`` starts `bslite serve`'s application in a process of its own, with bslite or
onnxruntime behind it, and sends requests of one row at random times (Poisson) over loopback, whether or not
earlier ones have been answered. Client and server share the machine. ``--resume`` adds rounds to those in the
file of ``--json``.
"""

import argparse
import asyncio
import json
import random
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import output
from benchmarks.serving import nets
from benchmarks.serving.load import Client, Taken, closed, poisson, request
from benchmarks.serving.server import ENGINES, OURS, Case, close, serving, work
from benchmarks.tables import ms, share, table

LOADS = (0.3, 0.6, 0.9, 3.0)  # of the capacity
CLIENTS = 8  # that measure the capacity, asking again when answered
SETTLE = 0.5  # seconds of load before the clock runs


@dataclass
class Result:
    """One load on one server in one round. ``rate``: requests a second; ``cpu``: seconds of the server's CPU
    for each request answered; ``rows``: of a run, in the mean; ``price``: seconds of a run by its rows, at
    start.
    """

    net: str
    case: dict[str, Any]
    load: float
    rate: float
    round: int
    sent: int = 0
    answered: float = 0.0  # a second
    shed: float = 0.0  # share of those sent
    p50: float | None = None
    p99: float | None = None
    cpu: float | None = None
    rows: float | None = None
    price: dict[str, float] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


def cases(engines: Sequence[str], threads: int, most: int) -> list[Case]:
    """One run at a time on all threads, or as many runs of one thread; with batches and without."""
    return [
        Case(engine, streams, threads // streams, batch)
        for engine in engines
        for streams in dict.fromkeys((1, threads))
        for batch in (1, most)
    ]


async def measured(
    name: str, path: Path, case: Case, rates: dict[float, float], options: Any
) -> list[Result]:
    """A server under one load after the other."""
    inputs = nets.rows(name)
    right = _checked(path, inputs, case.engine == OURS)
    results = []
    with serving(path, case, options.queue) as server:
        client = Client(server.port, [request(x) for x in inputs], right)
        for load, rate in rates.items():
            await poisson(client, rate, SETTLE, seed=options.seed)
            before, cpu = await _rows(client), server.cpu()
            taken = await poisson(client, rate, options.seconds, seed=options.seed + 1)
            result = _result(name, case, load, rate, options, taken)
            result.price = server.price
            if taken.latencies:
                result.cpu = (server.cpu() - cpu) / len(taken.latencies)
            after = await _rows(client)
            if after[1] > before[1]:
                result.rows = (after[0] - before[0]) / (after[1] - before[1])
            results.append(result)
        client.close()
    return results


def _result(name: str, case: Case, load: float, rate: float, options: Any, taken: Taken) -> Result:
    made = Result(name, asdict(case), load, rate, options.seed, taken.sent)
    made.answered, made.shed = len(taken.latencies) / taken.seconds, taken.shed / max(1, taken.sent)
    if taken.latencies:
        made.p50, made.p99 = (float(np.quantile(taken.latencies, q)) for q in (0.5, 0.99))
    if taken.wrong:
        made.failures[str(case)] = f"{taken.wrong} of {len(taken.latencies)} answers are wrong"
    elif taken.failed:
        made.failures[str(case)] = f"{taken.failed} of {taken.sent} requests failed"
    return made


def _checked(path: Path, inputs: Sequence[Any], exact: bool) -> Any:
    """Whether an answer is that of a call: its bytes, or up to rounding."""
    import bslite

    with bslite.compile(path) as model:
        wants = [model(x)[0] for x in inputs]

    def right(number: int, raw: bytes) -> bool:
        want = wants[number]
        if exact:
            return raw == want.tobytes()
        return len(raw) == want.nbytes and close(np.frombuffer(raw, np.float32).reshape(want.shape), want)

    return right


async def _rows(client: Client) -> tuple[float, float]:
    """Rows of all runs, and the number of runs."""
    text = await client.text("/metrics")
    total, count = (
        float(text.split(f'bslite_batch_rows_{what}{{model="net"}} ')[1].split("\n")[0])
        for what in ("sum", "count")
    )
    return total, count


async def capacity(name: str, path: Path, options: Any) -> float:
    """Requests a second that bslite answers to a few clients who wait, one run at a time, without batches."""
    inputs = nets.rows(name)
    with serving(path, Case(OURS, 1, options.threads, 1), options.queue) as server:
        client = Client(server.port, [request(x) for x in inputs], lambda number, raw: True)
        await closed(client, CLIENTS, SETTLE)
        taken = await closed(client, CLIENTS, options.seconds)
        client.close()
    return len(taken.latencies) / taken.seconds


def merged(results: Sequence[Result]) -> list[Result]:
    """One result for each net, case and load: medians over the rounds."""
    groups: dict[Any, list[Result]] = {}
    for r in results:
        groups.setdefault((r.net, json.dumps(r.case), r.load), []).append(r)
    made = []
    for found in groups.values():
        one = Result(found[0].net, found[0].case, found[0].load, found[0].rate, len(found))
        for key in ("sent", "answered", "shed", "p50", "p99", "cpu", "rows"):
            values = [v for r in found if (v := getattr(r, key)) is not None]
            setattr(one, key, statistics.median(values) if values else None)
        one.failures = {k: v for r in found for k, v in r.failures.items()}
        made.append(one)
    return sorted(made, key=lambda r: list(nets.NETS).index(r.net))  # a stable sort


def markdown(results: Sequence[Result], limits: Any, header: dict[str, Any]) -> str:
    """A table for each network and load."""
    together = merged(results)
    parts = [
        _table(name, load, [r for r in together if (r.net, r.load) == (name, load)])
        for name, load in sorted(
            {(r.net, r.load) for r in together}, key=lambda k: (list(nets.NETS).index(k[0]), k[1])
        )
    ]
    rounds = max((r.round for r in together), default=0)
    said = (
        "Requests of one row over loopback at random times (Poisson), medians of "
        f"{rounds} round(s) of {header['options']['seconds']:g} s. A load is a share of what bslite answers "
        f"without batches, one run at a time on all threads, to {CLIENTS} clients who wait. Latency counts "
        "from when a request is due; only 200s have one. `CPU`: of the server process, for each request "
        "answered, threads that spin included. `shed`: answered 429 by the queue of "
        f"{header['options']['queue']}. `rows`: of a run, in the mean. The client takes its share of the "
        "same cores. Every answer of bslite's is compared, bit by bit, with that of a call alone; "
        "onnxruntime stands behind the same server."
    )
    failures = output.failed(together, lambda r: f"{r.net}, load {r.load:g}")
    return output.document(*parts, said, failures, output.where(header))


def _table(name: str, load: float, results: Sequence[Result]) -> str:
    head = [
        "engine",
        "streams×threads",
        "batches",
        "answered/s",
        "p50 ms",
        "p99 ms",
        "CPU ms",
        "rows",
        "shed",
    ]
    rows = [
        [r.case["engine"], f"{r.case['streams']}×{r.case['threads']}",
         "on" if r.case["max_batch"] > 1 else "off", f"{r.answered:.0f}", ms(r.p50), ms(r.p99), ms(r.cpu),
         "-" if r.rows is None else f"{r.rows:.1f}", share(r.shed)]
        for r in results
    ]  # fmt: skip
    return (
        f"**{name}, load {load:g}: {results[0].rate:.0f} requests a second**\n\n{table(head, rows, left=3)}"
    )


def main(arguments: list[str] | None = None) -> int:
    """Measure and print tables. The exit code is 1 if an answer is wrong or a request fails."""
    parser = output.parser("serving", __doc__)
    output.choice(parser, "--nets", nets.NETS)
    output.choice(parser, "--engines", ENGINES)
    parser.add_argument("--threads", type=int, default=2, help="of all streams together")
    parser.add_argument("--max-batch", type=int, default=8, help="rows of a batch at most")
    parser.add_argument("--loads", type=float, nargs="+", default=LOADS, help="shares of the capacity")
    parser.add_argument("--seconds", type=float, default=3.0, help="that a load lasts")
    parser.add_argument("--queue", type=int, default=32, help="requests that wait at most")
    parser.add_argument("--seed", type=int, default=1, help="of the times; another one for each round")
    parser.add_argument("--resume", action="store_true", help="add to what the file of --json holds")
    output.add_options(parser)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        work(**json.loads(options.worker))
        return 0
    run = output.Run("serving", options, output.as_dict, markdown)
    if options.resume and options.json and options.json.exists():
        run.results = [Result(**r) for r in json.loads(options.json.read_text())["results"]]
    order = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        for name in options.nets:
            path = nets.exported(name, Path(folder))
            known = [r.rate / r.load for r in run.results if r.net == name]
            base = known[0] if known else asyncio.run(capacity(name, path, options))
            run.note(f"{name}: {base:.0f} requests a second")
            rates = {load: load * base for load in options.loads}
            every = cases(options.engines, options.threads, options.max_batch)
            for case in order.sample(every, len(every)):
                for result in asyncio.run(measured(name, path, case, rates, options)):
                    run.add(result, f"{name}, {case}, load {result.load:g}: p99 {ms(result.p99)} ms")
    order_of = {
        json.dumps(asdict(c)): n for n, c in enumerate(cases(ENGINES, options.threads, options.max_batch))
    }
    run.results.sort(key=lambda r: (r.round, order_of.get(json.dumps(r.case), 0)))
    run.finish()
    return int(any(r.failures for r in run.results))
