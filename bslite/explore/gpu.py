"""Recurrent layers on a GPU: machine, space and price, from published figures and without a GPU at hand.

A layer is one loop over time steps; each block of threads has ``units`` hidden units, all gates of them, and
each warp's lanes share a dot product. Two ways through the steps: one kernel that stays (persistent), with a
barrier over the whole grid between steps, whose blocks can keep their weights in registers and shared memory;
or a kernel per step, whose launch is the barrier, and whose weights come from L2 or memory each time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from bslite.explore.problem import FLOAT, Recurrent
from bslite.explore.search import Estimate, Part
from bslite.explore.space import Axis, Constraint, Point, Space
from bslite.machine import checked

CHIP, STREAMED = "chip", "streamed"
GRID, LAUNCH = "grid", "launch"
AHEAD, WITHIN = "ahead", "within"
HANDED = 8  # bytes of a value of h on its way to other blocks: with the number of the step it is for


@dataclass(frozen=True)
class GpuMachine:
    """A GPU as plain numbers; the defaults are those of an H200 (data sheet; latencies are usual figures of
    such GPUs, not measured by us).
    """

    sms: int = 132
    lanes: int = 128  # float32 multiply-adds of an SM per cycle
    clock: float = 1.83e9
    register_bytes: int = 160 << 10  # of an SM's registers, that weights can live in
    shared_bytes: int = 200 << 10  # of an SM's shared memory, likewise
    shared_bytes_per_cycle: float = 128.0  # that an SM reads from its shared memory
    sm_bytes_per_cycle: float = 64.0  # that an SM reads from L2
    l2_bytes: int = 50 << 20
    l2_bandwidth: float = 5.5e12  # bytes/s, all SMs
    memory_bandwidth: float = 4.8e12  # bytes/s
    l2_latency: float = 0.15e-6  # seconds, of one dependent read
    grid_sync: float = 1.2e-6  # seconds, of a barrier over all SMs
    block_threads: int = 1024  # the most threads of a block; the simulator's machine has few
    launch: float = 2.5e-6  # seconds from one kernel to the next, in a captured graph
    step_cycles: int = (
        300  # of what depends on each other in a step: shuffles of a sum, functions of the gates
    )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"kind": "gpu", **asdict(self)}

    def to_json(self) -> str:
        """As text that `bslite.explore.machine_file` reads."""
        return json.dumps(self.as_dict(), indent=1) + "\n"

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> GpuMachine:
        """From plain data; what is left out has the defaults. Raises EngineError naming what is wrong."""
        return checked(cls, data, "GPU")

    @property
    def chip_bytes(self) -> int:
        """Of weights that an SM can keep."""
        return self.register_bytes + self.shared_bytes


def _block_weights(layer: Recurrent, units: int, inputs: str) -> int:
    """Weights a block goes through at every step."""
    terms = layer.hidden + (layer.inputs if inputs == WITHIN else 0)
    return units * layer.gates * terms


def space(problem: Recurrent, machine: GpuMachine) -> Space:
    """Units per block, where weights live, how steps are kept apart, when inputs are multiplied."""

    def blocks(point: Point) -> int:
        return -(-problem.hidden // point.number("units"))

    def resident(point: Point) -> str | None:
        if point["steps"] == GRID and blocks(point) > machine.sms:
            return f"{blocks(point)} blocks, {machine.sms} SMs"
        return None

    def kept(point: Point) -> str | None:
        return (
            None if point["weights"] == STREAMED or point["steps"] == GRID else "a kernel per step keeps none"
        )

    def fits(point: Point) -> str | None:
        if point["weights"] == STREAMED:
            return None
        inputs = str(point["inputs"])
        held = sum(
            FLOAT * _block_weights(problem.layer(i), point.number("units"), inputs)
            for i in range(problem.layers)
        )
        return (
            f"{held} bytes of weights, an SM keeps {machine.chip_bytes}"
            if held > machine.chip_bytes
            else None
        )

    return Space(
        "recurrent loop on a GPU",
        (
            Axis("units", "hidden units per block", tuple(range(1, min(problem.hidden, 128) + 1))),
            Axis("weights", "kept on chip, or read at every step", (CHIP, STREAMED)),
            Axis("steps", "kept apart by a barrier over the grid, or by a launch", (GRID, LAUNCH)),
            Axis("inputs", "multiplied for all steps ahead, or within the step", (AHEAD, WITHIN)),
        ),
        (
            Constraint("weights stay only in a kernel that stays", kept),
            Constraint("blocks that meet at a barrier are all on the GPU at once", resident),
            Constraint("kept weights fit registers and shared memory", fits),
        ),
    )


def estimate(problem: Recurrent, machine: GpuMachine, point: Point) -> Estimate:
    """Seconds of the run at this point."""
    parts: dict[str, float] = {}
    hidden: dict[str, float] = {}
    for i in range(problem.layers):
        _add_layer(problem.layer(i), machine, point, parts, hidden)
    units, inputs = point.number("units"), str(point["inputs"])
    blocks = -(-problem.hidden // units)
    notes: dict[str, float | str] = {
        "blocks": blocks,
        "MB of weights per step": FLOAT * blocks * _block_weights(problem.layer(0), units, inputs) / 1e6,
    }
    found = [Part(name, seconds) for name, seconds in parts.items()]
    found += [Part(name, seconds, hidden=True) for name, seconds in hidden.items()]
    return Estimate(point, tuple(found), notes)


def _add_layer(
    p: Recurrent, m: GpuMachine, point: Point, parts: dict[str, float], hidden: dict[str, float]
) -> None:
    """Seconds of one layer, added to the parts."""

    def add(to: dict[str, float], name: str, seconds: float) -> None:
        to[name] = to.get(name, 0.0) + seconds

    units, inputs = point.number("units"), str(point["inputs"])
    blocks = -(-p.hidden // units)
    waves = -(-blocks // m.sms)  # blocks that an SM does one after the other
    weights = _block_weights(p, units, inputs)
    arithmetic = waves * p.batch * weights / (m.lanes * m.clock)
    reading, level = _reading(blocks, waves, FLOAT * weights, m, str(point["weights"]))
    # Every block reads all of h, which the others wrote: from L2, after the barrier.
    state = HANDED * p.batch * p.hidden
    h = 2 * m.l2_latency + max(
        blocks * state / m.l2_bandwidth, waves * state / (m.sm_bytes_per_cycle * m.clock)
    )
    busy = max(arithmetic, reading)
    add(parts, "multiply-adds", p.steps * arithmetic)
    add(parts, f"weights from {level}", p.steps * (busy - arithmetic))
    add(hidden, f"weights from {level}, covered", p.steps * (reading - (busy - arithmetic)))
    add(parts, "h to every block", p.steps * h)
    add(parts, "sums and functions", p.steps * m.step_cycles / m.clock)
    add(parts, "barrier", p.steps * (m.grid_sync if point["steps"] == GRID else m.launch))
    add(parts, "launch", m.launch)
    if inputs == AHEAD:
        rows, products = p.steps * p.batch, p.gates * p.hidden * p.inputs
        compute = rows * products / (m.sms * m.lanes * m.clock)
        made = FLOAT * rows * p.gates * p.hidden  # written, then read step by step
        moved = FLOAT * (products + rows * p.inputs) + 2 * made
        add(parts, "inputs ahead", m.launch + max(compute, moved / m.memory_bandwidth))


def _reading(blocks: int, waves: int, block_bytes: int, m: GpuMachine, weights: str) -> tuple[float, str]:
    """Seconds a step's weights take to come, and from where."""
    if weights == CHIP:
        shared = max(0, block_bytes - m.register_bytes)
        return waves * shared / (m.shared_bytes_per_cycle * m.clock), "shared memory"
    own = waves * block_bytes / (m.sm_bytes_per_cycle * m.clock)
    if blocks * block_bytes <= m.l2_bytes:
        return max(own, blocks * block_bytes / m.l2_bandwidth), "L2"
    return max(own, blocks * block_bytes / m.memory_bandwidth), "memory"
