"""What a simulated run gives: numbers, cycles, and how busy each kind of unit was."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bslite.errors import EngineError
from bslite.explore.spatial.cells import Array
from bslite.explore.spatial.machine import SpatialMachine
from bslite.explore.spatial.units import Key


@dataclass(frozen=True)
class Moment:
    """The machine at the start of a time step."""

    cycle: int
    signature: Key  # of everything that decides the cycles to come, relative to now
    busy: Counter[str]
    stalls: Counter[str]


@dataclass(frozen=True)
class LayerRun:
    """One layer, simulated for some of its steps."""

    outputs: Array  # [steps simulated, batch, hidden]
    state: tuple[Array, ...]  # h, and for the LSTM c, after the last simulated step: [batch, hidden]
    cycles: int
    moments: Sequence[Moment]  # of each simulated step but the first
    busy: Counter[str]
    stalls: Counter[str]
    units: Mapping[str, int]  # how many there are of each kind in ``busy``

    def extended(self, steps: int) -> tuple[int, Counter[str], Counter[str]]:
        """Cycles, busy cycles and stalls of ``steps`` steps.

        More than were simulated are put in by their period: if the machine was in the same state at the start
        of the last step and of the one before, it goes through the same cycles in between again and again,
        for nothing in it depends on numbers. Raises EngineError if the states differ.
        """
        more = steps - len(self.outputs)
        if not more:
            return self.cycles, self.busy, self.stalls
        if len(self.moments) < 2 or self.moments[-1].signature != self.moments[-2].signature:
            raise EngineError(
                f"{len(self.outputs)} simulated steps do not show a period, so {steps} cannot be told from "
                "them; simulate more"
            )
        before, after = self.moments[-2:]
        busy, stalls = Counter(self.busy), Counter(self.stalls)
        for total, now, then in ((busy, after.busy, before.busy), (stalls, after.stalls, before.stalls)):
            for name in now:
                total[name] += more * (now[name] - then[name])
        return self.cycles + more * (after.cycle - before.cycle), busy, stalls


@dataclass(frozen=True)
class Run:
    """A simulated run of all layers, for all steps of the problem."""

    machine: SpatialMachine
    outputs: Array  # of the last layer, [steps simulated, batch, hidden]
    states: tuple[tuple[Array, ...], ...]  # of each layer, after the last simulated step
    steps: int  # of the problem
    cycles: int
    multiply_adds: int  # that the problem needs
    busy: Mapping[str, int]
    stalls: Mapping[str, int]
    units: Mapping[str, int]
    simulated: int = field(default=0)  # steps; those of the problem if all

    @property
    def seconds(self) -> float:
        """From the request to the last output in memory."""
        return self.cycles / self.machine.clock

    @property
    def utilisation(self) -> dict[str, float]:
        """The share of cycles in which a unit of each kind is busy.

        The first entry is the share of all multipliers of the grid that do something useful.
        """
        multipliers = self.machine.pcus * self.machine.lanes
        shares = {"all multipliers, useful": self.multiply_adds / (self.cycles * multipliers)}
        for name, count in self.units.items():
            shares[name] = self.busy.get(name, 0) / (self.cycles * count)
        return shares

    def as_dict(self) -> dict[str, Any]:
        """For JSON; without the numbers computed."""
        return {
            "cycles": self.cycles,
            "seconds": self.seconds,
            "steps": self.steps,
            "steps_simulated": self.simulated,
            "utilisation": self.utilisation,
            "stalls": dict(self.stalls),
        }


def joined(machine: SpatialMachine, layers: Sequence[LayerRun], steps: int, multiply_adds: int) -> Run:
    """Layers one after the other, each of ``steps`` steps."""
    cycles = 0
    busy: Counter[str] = Counter()
    stalls: Counter[str] = Counter()
    units: Counter[str] = Counter()
    for layer in layers:
        more, used, waited = layer.extended(steps)
        cycles += more
        busy += used
        stalls += waited
        for name, count in layer.units.items():
            units[name] = max(units[name], count)
    last = layers[-1].outputs
    states = tuple(layer.state for layer in layers)
    return Run(machine, last, states, steps, cycles, multiply_adds, busy, stalls, units, simulated=len(last))
