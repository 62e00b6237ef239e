"""This machine's measured rates, kept on disk: bandwidth of each cache level, clock, multiply-adds.

`bslite.engines.cpu.calibrate` measures it, which takes some seconds and happens only on request (``bslite
calibrate``). The result lies next to the compiled kernels, one file for each CPU, vector width and number of
cores, and `detect` takes it into the Machine it describes. `detect` never measures by itself, so the same
files give the same plans. Results are the same bits whatever the rates: no sum is cut or ordered by them.
But for those who ask for bfloat16, bits depend on whether dot products of it prove faster than multiply-adds.
"""

import functools
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bslite.cache import machines_dir, read_json, write_json
from bslite.engines.cpu import unit
from bslite.engines.cpu.description import cpu_model, described
from bslite.engines.cpu.threads import available_cores, numba_threads
from bslite.errors import EngineError
from bslite.machine import LEVELS, Machine, Rates
from bslite.plan.cpu.on_tiles.split import CYCLES

FORMAT = 1
#: Times as many products by dot products of bfloat16 as by multiply-adds, from which on they are used.
WORTH = 1.5


@dataclass(frozen=True)
class Calibration:
    """The rates of one core and of all cores; `key` identifies the machine they belong to."""

    cpu: str
    lanes: int
    cores: int
    date: str  # ISO, UTC
    one: Rates
    all: Rates

    @property
    def disturbed(self) -> bool:
        """Whether other programs must have used the cores during the measurement.

        Undisturbed, two threads of one core compute more than one thread does, and every level gives all
        cores at least what it gives one.
        """
        slower = any(self.all.read(level) < 0.8 * self.one.read(level) for level in LEVELS)
        return slower or self.all.flops < 0.35 * self.cores * self.one.flops

    @property
    def key(self) -> str:
        """The name of this machine's file."""
        name = re.sub(r"[^a-z0-9]+", "-", self.cpu.lower()).strip("-")
        return f"{name}-{self.lanes}-lanes-{self.cores}-cores"


def path() -> Path:
    """The path of this machine's file, which need not exist."""
    return machines_dir() / f"{unmeasured().key}.json"


def save(calibration: Calibration) -> Path:
    """Save it to disk; plans made from now on, in this process too, use it. Raises OSError if that fails."""
    target = machines_dir() / f"{calibration.key}.json"
    write_json(target, FORMAT, asdict(calibration))
    kept.cache_clear()
    return target


def forget() -> bool:
    """Delete the file of this machine; return whether there was one."""
    there = path().exists()
    path().unlink(missing_ok=True)
    kept.cache_clear()
    return there


def load() -> Calibration | None:
    """The saved calibration of this machine, if any. A file that cannot be used gives a warning."""
    remedy = "make them anew with: bslite calibrate"
    return read_json(path(), FORMAT, _parse, "its measurements of this machine", remedy)


@functools.cache
def kept() -> Calibration | None:
    """The result of `load`, which reads the file once per process, and again after `save` and `forget`."""
    return load()


def _parse(data: Mapping[str, Any]) -> Calibration:
    one, all_ = Rates.from_dict(data["one"]), Rates.from_dict(data["all"])
    found = Calibration(
        str(data["cpu"]), int(data["lanes"]), int(data["cores"]), str(data["date"]), one, all_
    )
    if (one.threads, all_.threads, found.key) != (1, found.cores, unmeasured().key):
        raise EngineError(f"it is of another machine, {found.key}")
    return found


def calibrated(machine: Machine, calibration: Calibration | None) -> Machine:
    """The machine with the measured rates for its number of threads, if there are any, and with its unit for
    tiles, if that is to be used.
    """
    tiles = CYCLES if unit.trusted() else 0.0
    if calibration is None:
        return replace(machine, tile_cycles=tiles) if tiles else machine
    rates = at_threads(calibration, machine.threads)
    one = calibration.one
    ports = max(1, round(one.flops / (2 * machine.lanes * one.clock)))
    # A plan counts cycles of multiply-adds, which may take longer than those of the integer chain.
    cycles = machine.threads * one.flops / (2 * machine.lanes * ports)
    return replace(
        machine,
        fma_ports=ports,
        l2_bytes_per_cycle=_rounded(rates.l2_read / cycles),
        l3_bytes_per_cycle=_rounded(rates.l3_read / cycles),
        memory_bytes_per_cycle=_rounded(rates.memory_read / cycles),
        tile_cycles=_rounded(cycles / rates.tiles) if rates.tiles and tiles else tiles,
        dot_cycles=float(one.dots >= WORTH * one.flops) if one.dots else machine.dot_cycles,
        measured=rates,
    )


def at_threads(calibration: Calibration, threads: int) -> Rates:
    """Rates of ``threads`` threads: ``threads`` times those of one, at most those of all cores."""
    one, most = asdict(calibration.one), asdict(calibration.all)
    rates = {name: min(threads * one[name], most[name]) for name in one}
    if threads == 1:
        return calibration.one
    return Rates(**{**rates, "threads": threads, "clock": min(one["clock"], most["clock"])})


def _rounded(x: float) -> float:
    """``x`` rounded to two digits; the others are noise."""
    return float(f"{x:.2g}")


def unmeasured() -> Calibration:
    """A calibration that identifies this machine; its rates are zeros."""
    machine = described(1)
    nothing = Rates(1, *[0.0] * 10)
    return Calibration(
        cpu_model(), machine.lanes, min(available_cores(), numba_threads()), "", nothing, nothing
    )
