"""What this machine was measured to do, kept on disk: bandwidth of each cache level, clock, multiply-adds.

`measure` takes some seconds and runs only when asked to (``bslite calibrate``). What it found lies next to
the compiled kernels, one file for each CPU, vector width and number of cores, and `detect` takes it into the
Machine it describes. It never measures by itself: the same files give the same plans. And whatever the plan,
the results are the same bits: no sum may be cut or ordered by what a calibration says.
"""

from __future__ import annotations

import datetime
import re
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bslite.cache import machines_dir, read_json, write_json
from bslite.engines.cpu.detect import available_cores, cpu_model, described, detect, numba_threads
from bslite.engines.cpu.job import Job, in_forked_child, start_threads
from bslite.errors import EngineError
from bslite.machine import LEVELS, Machine, Rates

Floats = npt.NDArray[np.float32]
FORMAT = 1
SECONDS = 0.12  # for each of the 20 measurements
TURN = 2e-3  # seconds one timed call takes at least
MOST_MEMORY = 1 << 30  # bytes


@dataclass(frozen=True)
class Calibration:
    """Rates of one core and of all, and what they are of: `key` tells machines apart."""

    cpu: str
    lanes: int
    cores: int
    date: str  # ISO, UTC
    one: Rates
    all: Rates

    @property
    def disturbed(self) -> bool:
        """Whether the cores cannot have been ours alone.

        Even two threads of one core compute more than one; and no level gives all of them less than one.
        """
        slower = any(self.all.read(level) < 0.8 * self.one.read(level) for level in LEVELS)
        return slower or self.all.flops < 0.35 * self.cores * self.one.flops

    @property
    def key(self) -> str:
        """A file name."""
        name = re.sub(r"[^a-z0-9]+", "-", self.cpu.lower()).strip("-")
        return f"{name}-{self.lanes}-lanes-{self.cores}-cores"


def measure(seconds: float = SECONDS) -> Calibration:
    """Measure this machine now: about ``20 * seconds``, on all cores this process may use.

    What else runs at the same time is measured with it: leave the machine alone meanwhile.
    """
    blank = _blank()
    bench = _Bench(blank.cores, seconds)
    one = bench.rates(1)
    most = bench.rates(blank.cores) if blank.cores > 1 else one
    return replace(
        blank,
        date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        one=one,
        all=most,
    )


def path() -> Path:
    """The file of this machine, which need not exist."""
    return machines_dir() / f"{_blank().key}.json"


def save(calibration: Calibration) -> Path:
    """Keep it. Plans made from now on, in this process too, are made with it."""
    target = machines_dir() / f"{calibration.key}.json"
    write_json(target, FORMAT, asdict(calibration))
    detect.cache_clear()
    return target


def forget() -> bool:
    """Delete the file of this machine; whether there was one."""
    there = path().exists()
    path().unlink(missing_ok=True)
    detect.cache_clear()
    return there


def load() -> Calibration | None:
    """What was kept of this machine, if anything. A file that cannot be used is a warning, not an error."""
    remedy = "make them anew with: bslite calibrate"
    return read_json(path(), FORMAT, _parse, "its measurements of this machine", remedy)


def _parse(data: Mapping[str, Any]) -> Calibration:
    one, all_ = Rates.from_dict(data["one"]), Rates.from_dict(data["all"])
    found = Calibration(
        str(data["cpu"]), int(data["lanes"]), int(data["cores"]), str(data["date"]), one, all_
    )
    if (one.threads, all_.threads, found.key) != (1, found.cores, _blank().key):
        raise EngineError(f"it is of another machine, {found.key}")
    return found


def calibrated(machine: Machine, calibration: Calibration | None) -> Machine:
    """The machine with the rates that were measured, for its number of threads."""
    if calibration is None:
        return machine
    rates = at_threads(calibration, machine.threads)
    one = calibration.one
    ports = max(1, round(one.flops / (2 * machine.lanes * one.clock)))
    # Cycles of a plan are those multiply-adds run at, which may be fewer than those of the integer chain.
    cycles = machine.threads * one.flops / (2 * machine.lanes * ports)
    return replace(
        machine,
        fma_ports=ports,
        l2_bytes_per_cycle=_rounded(rates.l2_read / cycles),
        l3_bytes_per_cycle=_rounded(rates.l3_read / cycles),
        memory_bytes_per_cycle=_rounded(rates.memory_read / cycles),
        measured=rates,
    )


def at_threads(calibration: Calibration, threads: int) -> Rates:
    """Rates of ``threads`` threads: as many times those of one, but not more than of all."""
    one, most = asdict(calibration.one), asdict(calibration.all)
    rates = {name: min(threads * one[name], most[name]) for name in one}
    if threads == 1:
        return calibration.one
    return Rates(**{**rates, "threads": threads, "clock": min(one["clock"], most["clock"])})


def _rounded(x: float) -> float:
    """To two digits: the others are noise."""
    return float(f"{x:.2g}")


def _blank() -> Calibration:
    """What identifies this machine, with rates still to come."""
    machine = described(1)
    nothing = Rates(1, *[0.0] * 10)
    return Calibration(
        cpu_model(), machine.lanes, min(available_cores(), numba_threads()), "", nothing, nothing
    )


def working_sets(machine: Machine, threads: int) -> dict[str, int]:
    """Bytes each of ``threads`` threads goes over to measure a level: within it, beyond the one before."""
    total = max(256 << 20, min(4 * machine.l3, MOST_MEMORY))
    sets = {
        "l1": machine.l1 // 2,
        "l2": machine.l2 // 2,
        "l3": min(4 * machine.l2, max(2 * machine.l2, machine.l3 // (2 * threads))),
        "memory": total // threads,
    }
    return {level: size // 4096 * 4096 for level, size in sets.items()}


class _Bench:
    """Memory to go over, and the stream kernel to do it."""

    def __init__(self, threads: int, seconds: float) -> None:
        machine = described(threads)
        sizes = [t * max(working_sets(machine, t).values()) for t in (1, threads)]
        self.machine, self.seconds = machine, seconds
        # Written here and now, so that there is memory behind every page.
        self.memory = np.ones(max(sizes) // 4 + 1024, np.float32)
        self.sink = np.zeros(16 * threads, np.float32)
        start_threads(threads)

    def rates(self, threads: int) -> Rates:
        """Everything, on so many threads at once."""
        from bslite.kernels.cpu.runtime.stream import CHAIN, COPY, FMA, FMAS, READ
        from bslite.kernels.cpu.vector.simd import LANES

        found = {
            "clock": 2.0 * self._repeats_per_second(CHAIN, threads, 0),
            "flops": 2.0 * FMAS * LANES * threads * self._repeats_per_second(FMA, threads, 0),
        }
        for level, size in working_sets(self.machine, threads).items():
            found[f"{level}_read"] = threads * size * self._repeats_per_second(READ, threads, size)
            # Half of the set is read, half written.
            found[f"{level}_copy"] = threads * size * self._repeats_per_second(COPY, threads, size // 2)
        return Rates(threads=threads, **{name: float(f"{rate:.4g}") for name, rate in found.items()})

    def _repeats_per_second(self, mode: int, threads: int, size: int) -> float:
        # Enough to take one thread a while: what several take may at first be waiting for each other.
        repeats = 1
        while (taken := self._timed(mode, 1, size, repeats)) < TURN:
            repeats = max(2 * repeats, min(64 * repeats, int(1.2 * repeats * TURN / taken)))
        runs: list[float] = []
        end = time.perf_counter() + self.seconds
        while not runs or time.perf_counter() < end:
            runs.append(self._timed(mode, threads, size, repeats))
        faster = sorted(runs)[: len(runs) // 2 + 1]  # what disturbs only ever slows down
        return repeats / statistics.median(faster)

    def _timed(self, mode: int, threads: int, size: int, repeats: int) -> float:
        job = _job(mode, threads, size, repeats, self.memory, self.sink)
        start = time.perf_counter()
        job.run(threads)
        return time.perf_counter() - start


def fma_turn(threads: int, repeats: int) -> tuple[Callable[[], None], float]:
    """A call that does nothing but multiply-adds on ``threads`` threads, and how many operations they are."""
    from bslite.kernels.cpu.runtime.stream import FMA, FMAS
    from bslite.kernels.cpu.vector.simd import LANES

    flops = 2.0 * FMAS * LANES * threads * repeats
    memory, sink = np.ones(2048, np.float32), np.zeros(16 * threads, np.float32)
    job = _job(FMA, threads, 0, repeats, memory, sink)

    def turn() -> None:
        assert memory.size  # kept until the last turn
        assert sink.size
        job.run(threads)

    return turn, flops


def read_turn(
    threads: int, size: int, passes: int, alternate: bool = False
) -> tuple[Callable[[], None], float]:
    """A call that reads ``size`` bytes ``passes`` times over, each thread its own part, and how many bytes it
    reads in all: ``size`` is cut to a whole number of registers for each thread, of one at least.

    ``alternate``: every second pass goes through the panels from the last to the first, so that what a cache
    still holds of the pass before is met first.
    """
    from bslite.kernels.cpu.runtime.stream import READ, RUN, TURNS

    part = max(1, size // threads // RUN) * RUN
    # Written here and now, so that there is memory behind every page.
    memory, sink = np.ones((threads * part + 4096) // 4, np.float32), np.zeros(16 * threads, np.float32)
    job = _job(TURNS if alternate else READ, threads, part, passes, memory, sink)

    def turn() -> None:
        assert memory.size  # kept until the last turn
        assert sink.size
        job.run(threads)

    return turn, float(threads * part * passes)


def meeting(threads: int, times: int) -> float:
    """Seconds that ``threads`` threads take to wait for each other once, of ``times`` in a row.

    Raises EngineError where so many cannot run at once: the first would wait for ever.
    """
    from bslite.kernels.cpu.runtime.stream import MEET
    from bslite.kernels.cpu.vector.atomic import LINE

    if threads > numba_threads() or in_forked_child():
        raise EngineError(f"{threads} threads cannot run at once here, {numba_threads()} can")
    memory, sink = np.zeros((times * LINE + 4096) // 4, np.float32), np.zeros(16 * threads, np.float32)
    job = _job(MEET, threads, 0, times, memory, sink, meet=threads)
    start_threads(threads)
    start = time.perf_counter()
    job.run(threads)
    return (time.perf_counter() - start) / times


def _job(
    mode: int, threads: int, size: int, repeats: int, memory: Floats, sink: Floats, meet: int | None = None
) -> Job:
    """Each of ``threads`` items goes ``repeats`` times over its own ``size`` bytes; keep the arrays alive.

    ``meet``: how many are to wait for each other.
    """
    from bslite.kernels.cpu.runtime.stream import stream
    from bslite.kernels.cpu.runtime.walk import CELLS

    cells = {name: i for i, name in enumerate(stream.fields)}
    program = np.zeros((1, CELLS), np.int64)
    values = {
        "kernel": stream.address, "items": threads, "data_item": size, "target_at": threads * size,
        "bytes": size, "repeats": repeats, "mode": mode, "sink": 1,
        "a": 0x1E3779B97F4A7C15 if meet is None else meet, "b": 0x5DEECE66D,
    }  # fmt: skip
    for name, value in values.items():
        program[0, cells[name]] = value
    aligned = memory.ctypes.data + -memory.ctypes.data % 4096
    return Job(program, np.array([aligned, sink.ctypes.data], np.int64))


__all__ = [
    "LEVELS",
    "Calibration",
    "calibrated",
    "fma_turn",
    "forget",
    "load",
    "measure",
    "meeting",
    "path",
    "read_turn",
    "save",
]
