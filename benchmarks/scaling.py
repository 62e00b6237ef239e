"""Data-parallel training over gloo: measured at 2 and 4 processes, modelled beyond.

``python -m benchmarks.scaling`` measures when a process has made the gradients of each of
DistributedDataParallel's buckets, alone and with another beside it, and how long gloo takes to sum bytes over
two processes. From that `benchmarks.ring` models steps; its error is the difference to measured ones.
All processes are on this machine and share its cores, each computes with one thread. Figures for more,
each on a machine of its own, are modelled, and say so.
"""

import multiprocessing
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np

import bslite
from benchmarks import output
from benchmarks import training_steps as training
from benchmarks.ring import Bucket, Link, step
from benchmarks.tables import ms, share, table

SIZES = tuple(1 << n for n in range(2, 26, 3))  # bytes that are summed to measure gloo
MEASURED = 2, 4  # processes on this machine
MODELLED = 2, 4, 8, 16, 32, 64  # machines
NETS = {  # links between machines: seconds of a message, and of a byte
    "10 Gbit/s, 30 us": Link(30e-6, 8 / 10e9),
    "25 Gbit/s, 20 us": Link(20e-6, 8 / 25e9),
    "100 Gbit/s, 5 us": Link(5e-6, 8 / 100e9),
}
LIMIT = 60  # seconds that a process waits for another
WARM = 3  # steps before those that are measured: the first trace and plan, the second sorts the buckets


@dataclass(frozen=True)
class Steps:
    """Of one process: seconds of a step, and the buckets; medians."""

    seconds: float
    buckets: Sequence[Bucket] = ()


@dataclass(frozen=True)
class Result:
    """One network. ``alone``, ``beside``: steps without exchange of one process, and next to another's."""

    name: str
    alone: Steps
    beside: Steps
    link: Link
    cores: int
    measured: dict[int, float] = field(default_factory=dict)  # processes -> seconds of a step

    def here(self, processes: int) -> float:
        """Modelled seconds of a step on this machine."""
        return step(self.beside.buckets, self.beside.seconds, processes, self.link, self.cores)

    def error(self, processes: int) -> float:
        """By how much the model is off, relative to what is measured."""
        return self.here(processes) / self.measured[processes] - 1

    def efficiency(self, machines: int, link: Link) -> float:
        """Modelled: the share of the throughput of so many machines without exchange."""
        return self.alone.seconds / step(self.alone.buckets, self.alone.seconds, machines, link)


def together(processes: int, task: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What ``task(rank, processes, *arguments)`` returns in each of several processes joined by gloo."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        made = [pool.submit(_joined, r, processes, port, task, arguments) for r in range(processes)]
        return [each.result() for each in made]


def _joined(rank: int, processes: int, port: int, task: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", address, timedelta(seconds=LIMIT), rank=rank, world_size=processes)
    try:
        return task(rank, processes, *arguments)
    finally:
        dist.destroy_process_group()


def exchanges(rank: int, processes: int, rounds: int) -> list[tuple[int, float, float]]:
    """Bytes, seconds to sum them over all processes, and cores that this took: medians."""
    import torch
    import torch.distributed as dist

    found = []
    for size in SIZES:
        tensor, times, busy = torch.zeros(size // 4), [], []
        for _ in range(2 + rounds):
            dist.barrier()
            start, worked = time.perf_counter(), time.process_time()
            dist.all_reduce(tensor)
            times.append(time.perf_counter() - start)
            busy.append((time.process_time() - worked) / times[-1])
        found.append((size, statistics.median(times[2:]), statistics.median(busy[2:])))
    return found


def fitted(found: Sequence[tuple[int, float, float]]) -> Link:
    """The link that two processes' exchanges fit best, by relative error."""
    sizes, times, busy = map(np.array, zip(*found, strict=True))
    columns = np.stack([2 / times, sizes / times], axis=1)  # an exchange sends two messages of half the size
    latency, per_byte = np.linalg.lstsq(columns, np.ones(len(times)), rcond=None)[0]
    return Link(max(0.0, float(latency)), max(0.0, float(per_byte)), float(busy[-1]))


def steps(
    rank: int, processes: int, make: Callable[[], Any], example: Callable[[], Any], rounds: int, sums: bool
) -> Steps:
    """Steps of one of several processes; without ``sums`` nothing is exchanged, and buckets are noted."""
    import torch
    import torch.distributed as dist
    from torch.nn.functional import cross_entropy
    from torch.nn.parallel import DistributedDataParallel

    wrapped = bslite.optimize(make(), training=True, threads=1, fallback="silent")
    module, (x, y) = DistributedDataParallel(wrapped, forward_sync_buffers=False), example()
    noted: list[tuple[float, int]] = []

    def keep(state: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        noted.append((time.perf_counter(), bucket.buffer().nbytes))
        kept: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        kept.set_result(bucket.buffer())
        return kept

    if not sums:
        module.register_comm_hook(None, keep)
    times, ready = [], []
    for _ in range(WARM + rounds):
        module.zero_grad()
        noted.clear()
        dist.barrier()
        start = time.perf_counter()
        cross_entropy(module(x), y).backward()
        times.append(time.perf_counter() - start)
        ready.append([at - start for at, _ in noted])
    seconds = map(statistics.median, zip(*ready[WARM:], strict=True))
    buckets = [Bucket(at, size) for at, (_, size) in zip(seconds, noted, strict=True)]
    return Steps(statistics.median(times[WARM:]), buckets)


def measured(
    name: str, make: Callable[[], Any], example: Callable[[], Any], rounds: int, processes: Sequence[int],
    link: Link,
) -> Result:  # fmt: skip
    """A network's steps: alone, beside another, and with sums over several processes, of the slowest one."""
    given = make, example, rounds
    (alone,) = together(1, steps, *given, False)
    beside = max(together(2, steps, *given, False), key=lambda each: each.seconds)
    sums = {n: max(each.seconds for each in together(n, steps, *given, True)) for n in processes}
    return Result(name, alone, beside, link, len(os.sched_getaffinity(0)), sums)


def as_dict(results: Sequence[Result], limits: None, header: dict[str, Any]) -> dict[str, Any]:
    """Everything, ready for JSON."""
    rows = [
        {
            **asdict(r),
            "modelled_here": {n: r.here(n) for n in r.measured},
            "error": {n: r.error(n) for n in r.measured},
            "modelled_efficiency": {
                k: {n: r.efficiency(n, net) for n in MODELLED} for k, net in NETS.items()
            },
        }
        for r in results
    ]
    return {**header, "results": rows}


def markdown(results: Sequence[Result], limits: None, header: dict[str, Any]) -> str:
    """Steps measured and modelled on this machine; modelled ones on machines of their own."""
    here = [
        [r.name, str(n), ms(seconds), ms(r.here(n)), f"{100 * r.error(n):+.0f} %"]
        for r in results
        for n, seconds in r.measured.items()
    ]
    beyond = [
        [r.name, name, *(share(r.efficiency(n, link)) for n in MODELLED)]
        for r in results
        for name, link in NETS.items()
    ]
    said = [
        f"- {r.name}: without exchange a step takes {ms(r.alone.seconds)} ms, {ms(r.beside.seconds)} beside "
        f"another; {len(r.alone.buckets)} buckets, the first ready after {ms(r.alone.buckets[0].ready)} ms"
        for r in results
    ]
    (link,) = {r.link for r in results}
    gloo = (
        f"gloo, two processes: {1e6 * link.latency:.0f} us a message, {1e-9 / link.per_byte:.2f} GB/s, "
        f"{link.busy:.2f} cores of each."
    )
    return output.document(
        "Steps on this machine, whose cores the processes share (one thread each):",
        table(["network", "processes", "measured, ms", "modelled, ms", "error"], here),
        "\n".join(said), gloo,
        "Modelled, not measured: the share of the throughput that is left on machines of their own.",
        table(["network", "link", *(f"{n} (modelled)" for n in MODELLED)], beyond, left=2),
        output.where(header),
    )  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Measure, model, and print both with the model's error."""
    parser = output.parser("scaling", __doc__)
    known = training.NAMES
    parser.add_argument("--networks", nargs="+", choices=known, default=["resnet18"], metavar="NAME")
    parser.add_argument("--batch", type=int, default=2, help="of each process")
    parser.add_argument("--side", type=int, default=224, help="rows and columns of an image")
    parser.add_argument("--processes", type=int, nargs="+", default=MEASURED)
    parser.add_argument("--rounds", type=int, default=7)
    output.add_options(parser, plot=False)
    options = parser.parse_args(arguments)
    run = output.Run("scaling", options, as_dict, markdown)
    link = fitted(together(2, exchanges, options.rounds)[0])
    for name in options.networks:
        make, example = (
            partial(training.made, name),
            partial(training.example, name, options.batch, options.side),
        )
        found = measured(name, make, example, options.rounds, options.processes, link)
        worst = max(abs(found.error(n)) for n in options.processes)
        run.add(found, f"{name}: the model is off by {100 * worst:.0f} % at most")
    run.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
