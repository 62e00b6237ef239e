"""What cores share: memory's bandwidth, L3, power. Numbers of this machine, or of one that is described."""

from dataclasses import asdict, dataclass
from typing import Any

from bslite.machine import Machine, Rates


@dataclass(frozen=True)
class Host:
    """``cores`` with one ``l3`` (bytes). ``alone`` and ``memory``: bytes/s of memory that one core reads, and
    all together. ``crowd``: a core's speed while all others compute, over its speed alone. ``here``: whether
    it is this machine.
    """

    cores: int
    l3: int
    alone: float
    memory: float
    crowd: float = 1.0
    here: bool = False

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def host_here(cores: int) -> Host:
    """So many cores of this machine, by ``bslite calibrate``'s measurements; without them, made now."""
    from bslite.engines.cpu.calibrate import measure
    from bslite.engines.cpu.calibration import at_threads, kept
    from bslite.engines.cpu.description import described

    # What others did meanwhile only slows all cores down: the fastest of a few counts.
    found = kept() or max((measure(0.06) for _ in range(TRIES)), key=lambda c: c.all.flops / c.one.flops)
    rates = at_threads(found, cores)
    crowd = min(1.0, found.all.flops / (found.cores * found.one.flops))
    return Host(
        cores,
        described(cores).l3,
        _reading(found.one),
        max(_reading(rates), _reading(found.one)),
        crowd,
        True,
    )


TRIES = 3  # measurements of the machine


def host_described(cores: int, machine: Machine, clock: float) -> Host:
    """So many cores of a machine that is described, the others idle: all of its bandwidth is theirs, as far
    as they can take it. ``clock``: cycles per second.
    """
    all_cores = machine.threads * machine.memory_bytes_per_cycle * clock
    alone = min(all_cores, ALONE * machine.memory_bytes_per_cycle * clock)
    return Host(cores, machine.l3, alone, min(all_cores, cores * alone))


#: How many times its share of the bandwidth one core reads while the others are idle: 12 GB/s where 48 cores
#: have 6 each.
ALONE = 2.0


def _reading(rates: Rates) -> float:
    return max(rates.memory_read, rates.memory_copy)
