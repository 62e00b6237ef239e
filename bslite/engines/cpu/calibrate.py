"""Measurement of this machine for a `Calibration`: each cache level, the clock, multiply-adds."""

import ctypes
import datetime
import statistics
import time
from dataclasses import replace

import numpy as np

from bslite.engines.cpu.calibration import Calibration, unmeasured
from bslite.engines.cpu.description import described
from bslite.engines.cpu.job import start_threads
from bslite.engines.cpu.peak import fma_rate
from bslite.engines.cpu.stream import stream_job
from bslite.kernels.contracts.cpu.tiles import PARTS
from bslite.machine import Machine, Rates

SECONDS = 0.12  # for each of some 20 measurements
TURN = 2e-3  # seconds one timed call takes at least
MOST_MEMORY = 1 << 30  # bytes


def measure(seconds: float = SECONDS) -> Calibration:
    """Measure this machine now: about ``20 * seconds``, on all cores this process may use.

    Other programs that run at the same time disturb the measurement, so leave the machine idle meanwhile.
    """
    blank = unmeasured()
    bench = _Bench(blank.cores, seconds)
    one = bench.rates(1)
    most = bench.rates(blank.cores) if blank.cores > 1 else one
    return replace(
        blank,
        date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        one=one,
        all=most,
    )


def working_sets(machine: Machine, threads: int) -> dict[str, int]:
    """Bytes that each thread reads to measure a level: they fit this level, but not the one before."""
    total = max(256 << 20, min(4 * machine.l3, MOST_MEMORY))
    sets = {
        "l1": machine.l1 // 2,
        "l2": machine.l2 // 2,
        "l3": min(4 * machine.l2, max(2 * machine.l2, machine.l3 // (2 * threads))),
        "memory": total // threads,
    }
    return {level: size // 4096 * 4096 for level, size in sets.items()}


def tiles_per_second(seconds: float) -> float:
    """Products of tiles of bfloat16 of one core, operands in L1; six make a product of float32 numbers."""
    from bslite.kernels.cpu.tiles.peak import BYTES, PER_BLOCK, PRODUCTS, tile_peak
    from bslite.kernels.cpu.tiles.sweep import tile_sweep

    call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(tile_peak.address)
    memory = np.zeros(BYTES + 64, np.uint8)
    sweep = tile_sweep(PRODUCTS, PARTS[PRODUCTS]).address
    start = memory.ctypes.data + -memory.ctypes.data % 64
    repeats, found = 1, list[float]()
    end = time.perf_counter() + seconds
    while not found or time.perf_counter() < end:
        begun = time.perf_counter()
        call(sweep, start, repeats)
        taken = time.perf_counter() - begun
        if taken < TURN:
            repeats *= 2
        else:
            found.append(PER_BLOCK * repeats / taken)
    return statistics.median(sorted(found)[len(found) // 2 :])  # disturbances only slow a run down


class _Bench:
    """Memory to read and write, and the stream kernel that does it."""

    def __init__(self, threads: int, seconds: float) -> None:
        machine = described(threads)
        sizes = [t * max(working_sets(machine, t).values()) for t in (1, threads)]
        self.machine, self.seconds = machine, seconds
        # Written now, so that there is memory behind every page.
        self.memory = np.ones(max(sizes) // 4 + 1024, np.float32)
        self.sink = np.zeros(16 * threads, np.float32)
        start_threads(threads)

    def rates(self, threads: int) -> Rates:
        """All rates on this many threads at once."""
        from bslite.kernels.cpu.runtime.stream import CHAIN, COPY, FMA, FMAS, READ
        from bslite.kernels.cpu.vector.simd import LANES
        from bslite.kernels.cpu.vector.target import has_bfloat16_dots, has_tiles

        found = {
            "clock": 2.0 * self._repeats_per_second(CHAIN, threads, 0),
            "flops": 2.0 * FMAS * LANES * threads * self._repeats_per_second(FMA, threads, 0),
        }
        if has_tiles():
            found["tiles"] = threads * tiles_per_second(self.seconds)  # each core has a unit of its own
        if has_bfloat16_dots():
            # The microkernel also loads and stores, which says nothing of the instruction's own rate.
            gain = fma_rate(threads, self.seconds, dots=True) / fma_rate(threads, self.seconds)
            found["dots"] = gain * found["flops"]
        for level, size in working_sets(self.machine, threads).items():
            found[f"{level}_read"] = threads * size * self._repeats_per_second(READ, threads, size)
            # Half of the set is read, half written.
            found[f"{level}_copy"] = threads * size * self._repeats_per_second(COPY, threads, size // 2)
        return Rates(threads=threads, **{name: float(f"{rate:.4g}") for name, rate in found.items()})

    def _repeats_per_second(self, mode: int, threads: int, size: int) -> float:
        # Enough to keep one thread busy for a while: several may at first wait for each other.
        repeats = 1
        while (taken := self._timed(mode, 1, size, repeats)) < TURN:
            repeats = max(2 * repeats, min(64 * repeats, int(1.2 * repeats * TURN / taken)))
        runs: list[float] = []
        end = time.perf_counter() + self.seconds
        while not runs or time.perf_counter() < end:
            runs.append(self._timed(mode, threads, size, repeats))
        faster = sorted(runs)[: len(runs) // 2 + 1]  # disturbances only slow a run down
        return repeats / statistics.median(faster)

    def _timed(self, mode: int, threads: int, size: int, repeats: int) -> float:
        job = stream_job(mode, threads, size, repeats, self.memory, self.sink)
        start = time.perf_counter()
        job.run(threads)
        return time.perf_counter() - start
