"""A spatial accelerator as plain numbers, after Plasticine (Prabhakar et al., ISCA 2017)."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from bslite.errors import EngineError
from bslite.machine import checked


@dataclass(frozen=True)
class SpatialMachine:
    """A grid of cells on a static network. A cell is one pattern compute unit (PCU) and its pattern memory
    units (PMU).

    A PCU is a pipeline of ``stages`` stages of ``lanes`` float32 function units each; a stage takes a cycle.
    The last stages can be a reduction tree, whose levels fold into one stage's units and take a cycle each. A
    PMU is a scratchpad of banks, each of which reads and writes one float32 word per cycle. Vectors of one
    word per lane go from cell to neighbouring cell along tracks that are allocated before the run.
    """

    rows: int = 16
    columns: int = 12
    pmus_per_pcu: int = 2
    lanes: int = 16
    stages: int = 4
    function_stages: int = 4  # that exp, tanh or sigmoid goes through
    pmu_bytes: int = 84 << 10
    banks: int = 16  # of a PMU
    hop_cycles: int = 1  # from a cell to its neighbour
    tracks: int = 10  # vectors that can cross from a cell to its neighbour in a cycle
    clock: float = 1e9
    dram_bandwidth: float = 51.2e9  # bytes/s
    dram_latency: int = 100  # cycles
    launch_cycles: int = field(default=16, metadata={"zero": True})  # for a controller to start a kernel

    def __post_init__(self) -> None:
        for name in ("lanes", "banks"):
            value = getattr(self, name)
            if value & (value - 1):
                raise EngineError(f"spatial machine description: {name} must be a power of two, got {value}")

    @property
    def pcus(self) -> int:
        """Cells, each with one PCU."""
        return self.rows * self.columns

    @property
    def cell_bytes(self) -> int:
        """Bytes that a cell's PMUs hold."""
        return self.pmus_per_pcu * self.pmu_bytes

    @property
    def dram_bytes_per_cycle(self) -> float:
        """What the memory outside delivers or takes."""
        return self.dram_bandwidth / self.clock

    def too_few_tracks(self, vectors: int) -> str | None:
        """Why so many vectors cannot cross a cell's border at once; None if they can."""
        if vectors <= self.tracks:
            return None
        return f"{vectors} vectors cross a cell's border, there are {self.tracks} tracks"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"kind": "spatial", **asdict(self)}

    def to_json(self) -> str:
        """As text that `bslite.explore.machine_file` reads."""
        return json.dumps(self.as_dict(), indent=1) + "\n"

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "SpatialMachine":
        """From plain data; what is left out has the defaults. Raises EngineError naming what is wrong."""
        return checked(cls, data, "spatial machine")
