"""The machine a plan is made for: plain numbers, detected by an engine or written by hand."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Machine:
    """What tuning decisions consult. Sizes in bytes, of one core's share where a level is private."""

    threads: int = 1
    lanes: int = 16  # float32 per vector register
    registers: int = 32  # vector registers
    l1: int = 32 << 10
    l2: int = 1 << 20
    l3: int = 32 << 20  # shared
    fma_ports: int = 2  # vector multiply-adds, and vector loads, per cycle
    fma_latency: int = 4  # cycles
    l2_bytes_per_cycle: float = 32.0  # what one core streams from its L2,
    l3_bytes_per_cycle: float = 10.0  # from L3,
    memory_bytes_per_cycle: float = 4.0  # and from memory

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)
