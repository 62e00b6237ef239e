"""What the machine can do at best: the ceilings of a roofline, and the floor they put under a layer's time.

Roofline: Williams, Waterman and Patterson, Communications of the ACM 52(4), 2009. Here the roof has one slope
per level of the memory: bytes come from the smallest level that can hold what is moved.
"""

import functools
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from bslite.machine import Machine, Rates

if TYPE_CHECKING:
    from bslite.engines.cpu.calibration import Calibration

LEVELS = ("l2", "l3", "memory")


@dataclass(frozen=True)
class Limits:
    """Rates of ``threads`` cores together: ``flops`` in FLOP/s, ``bandwidth`` in bytes/s from each level.

    ``clock`` is in cycles a second of one core; ``capacity`` is the bytes that L2, all cores' together, and
    L3 hold.
    """

    threads: int
    clock: float
    flops: float
    bandwidth: Mapping[str, float]
    capacity: Mapping[str, int]
    bfloat16: float = 0.0  # FLOP/s of products of bfloat16; 0 where no instruction computes them

    def level(self, size: float) -> str:
        """The smallest level that holds ``size`` bytes."""
        return next((name for name, most in self.capacity.items() if size <= most), "memory")

    def floor(
        self, flops: float, bytes_: float, weights: float, in_use: float, footprint: float, products: int = 0
    ) -> tuple[float, str]:
        """Seconds that a layer takes at least, and what bounds it: "compute" or a level of the memory.

        ``bytes_`` of values it reads and writes come from the level that holds those ``in_use`` at the same
        time; the ``weights``, which were last used a whole run ago, from the one that holds the run's
        ``footprint``. ``products``: of bfloat16 for each of float32; 0 for multiply-adds.
        """
        near, far = self.level(in_use), self.level(footprint)
        moving = bytes_ / self.bandwidth[near] + weights / self.bandwidth[far]
        computing = products * flops / self.bfloat16 if products and self.bfloat16 else flops / self.flops
        return (computing, "compute") if computing >= moving else (moving, far if weights > bytes_ else near)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@functools.cache
def measured(threads: int) -> Limits:
    """The limits of this machine that ``bslite calibrate`` kept; else they are measured, for some seconds."""
    from bslite.engines.cpu.calibration import at_threads
    from bslite.engines.cpu.detect import detect

    machine = detect(threads)
    return limits_of(machine, machine.measured or at_threads(_calibration(), threads))


@functools.cache
def _calibration() -> "Calibration":
    from bslite.engines.cpu.calibrate import measure

    return measure()


def limits_of(machine: Machine, rates: Rates) -> Limits:
    """The faster of reading and copying, for each level; an inner level is never slower than an outer one."""
    best = {name: max(rates.read(name), rates.copy(name)) for name in LEVELS}
    for outer, inner in (("memory", "l3"), ("l3", "l2")):
        best[inner] = max(best[inner], best[outer])
    capacity = {"l2": machine.l2 * machine.threads, "l3": machine.l3}
    return Limits(machine.threads, rates.clock, rates.flops, best, capacity, rates.tile_flops or rates.dots)
