"""Recurrent layers on a GPU: machine, space and price, from published figures and without a GPU at hand.

A layer is one loop over time steps; each block of threads has ``units`` hidden units, all gates of them, and
each warp's lanes share a dot product. Two ways through the steps: one kernel that stays (persistent), whose
blocks hand each other h through L2 and can keep their weights in registers and shared memory; or a kernel per
step, whose weights come from L2 or memory each time. A kernel that stays may also keep a part of its weights
and read the rest.

Reading of weights and multiplying overlap, so the longest counts: multiply-adds, shared memory, L2 (or
memory, where what all blocks read at every step is more than L2 holds).
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from bslite.explore.costs import Costs
from bslite.explore.problem import FLOAT, Recurrent
from bslite.explore.search import Estimate
from bslite.explore.space import Axis, Constraint, Point, Space
from bslite.machine import checked

CHIP, SPLIT, STREAMED = "chip", "split", "streamed"
GRID, LAUNCH = "grid", "launch"
AHEAD, WITHIN = "ahead", "within"
HANDED = 8  # bytes of a value of h on its way to other blocks: with the number of the step it is for


@dataclass(frozen=True)
class GpuMachine:
    """A GPU as plain numbers. The defaults are an H200's by its data sheet, with usual latencies."""

    sms: int = 132
    lanes: int = 128  # float32 multiply-adds of an SM per cycle
    maxima: int = 3  # integers whose maximum is one instruction: 2 before compute capability 9.0
    tensor_lanes: int = 1024  # TF32 multiply-adds of its tensor cores per cycle; 0: none, or no faster
    clock: float = 1.83e9
    register_bytes: int = 176 << 10  # of an SM's registers, that weights can live in
    shared_bytes: int = 227 << 10  # of shared memory that a block can have
    shared_bytes_per_cycle: float = 128.0  # that an SM reads from its shared memory
    sm_bytes_per_cycle: float = 64.0  # that an SM reads from L2
    l2_bytes: int = 50 << 20
    l2_bandwidth: float = 5.5e12  # bytes/s, all SMs
    memory_bandwidth: float = 4.8e12  # bytes/s
    l2_latency: float = 0.15e-6  # seconds, of one dependent read
    grid_sync: float = 0.7e-6  # seconds from storing a value until all SMs that wait for it in L2 have it
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
    def from_dict(cls, data: Mapping[str, Any]) -> "GpuMachine":
        """From plain data; what is left out has the defaults. Raises EngineError naming what is wrong."""
        return checked(cls, data, "GPU")

    @property
    def chip_bytes(self) -> int:
        """The bytes of weights that an SM can keep."""
        return self.register_bytes + self.shared_bytes


class Work(NamedTuple):
    """What a block of threads does in a time step, all its ``sequences`` together; ``blocks`` of them."""

    blocks: int
    sequences: int
    issue: float  # cycles of its SM
    shared: float  # bytes from shared memory
    streamed: float  # bytes of weights from L2 or memory, as often as they are read
    once: float  # bytes of weights that it reads at all
    waits: int = 0  # for L2, one after the other


def _ideal(p: Recurrent, m: GpuMachine, point: Point) -> Work:
    """Every weight is read once and meets all sequences; on chip, registers are filled first."""
    units = point.number("units")
    weights = _block_weights(p, units, str(point["inputs"]))
    rest = float(FLOAT * weights)
    shared = 0.0
    if point["weights"] != STREAMED:
        rest = max(0.0, rest - m.register_bytes)
        shared = min(rest, m.shared_bytes)
        rest -= shared
    return Work(-(-p.hidden // units), p.batch, p.batch * weights / m.lanes, shared, rest, rest)


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
        stays = point["weights"] == STREAMED or point["steps"] == GRID
        return None if stays else "a kernel per step keeps none"

    def fits(point: Point) -> str | None:
        if point["weights"] != CHIP:
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
            Axis(
                "weights",
                "kept on chip, as far as there is room, or read at every step",
                (CHIP, SPLIT, STREAMED),
            ),
            Axis("steps", "in one launch whose blocks wait for each other, or a launch each", (GRID, LAUNCH)),
            Axis("inputs", "multiplied for all steps ahead, or within the step", (AHEAD, WITHIN)),
        ),
        (
            Constraint("weights stay only in a kernel that stays", kept),
            Constraint("blocks that wait for each other are all on the GPU at once", resident),
            Constraint("kept weights fit registers and shared memory", fits),
        ),
    )


def estimate(problem: Recurrent, machine: GpuMachine, point: Point) -> Estimate:
    """Seconds of the run at this point."""
    costs = Costs()
    for i in range(problem.layers):
        layer = problem.layer(i)
        _add_layer(layer, machine, point, _ideal(layer, machine, point), costs)
    units, inputs = point.number("units"), str(point["inputs"])
    blocks = -(-problem.hidden // units)
    notes: dict[str, float | str] = {
        "blocks": blocks,
        "MB of weights per step": FLOAT * blocks * _block_weights(problem.layer(0), units, inputs) / 1e6,
    }
    return costs.estimate(point, notes)


def step_parts(p: Recurrent, m: GpuMachine, work: Work, stays: bool) -> dict[str, tuple[float, float]]:
    """The parts of a time step's seconds, those that count and those that others hide.

    ``stays``: all steps are one launch.
    """
    waves = -(-work.blocks // m.sms)  # blocks that an SM does one after the other
    issue, port = waves * work.issue / m.clock, m.sm_bytes_per_cycle * m.clock
    shared = waves * work.shared / (m.shared_bytes_per_cycle * m.clock)
    in_l2 = work.blocks * work.once <= m.l2_bytes
    level, bandwidth = ("L2", m.l2_bandwidth) if in_l2 else ("memory", m.memory_bandwidth)
    streamed = max(
        waves * work.streamed / port,
        work.blocks * work.streamed / bandwidth,
        waves * work.waits * 2 * m.l2_latency,
    )
    found, done = {"multiply-adds": (issue, 0.0)}, issue
    for name, seconds in sorted((("shared memory", shared), (level, streamed)), key=lambda way: -way[1]):
        longer = max(0.0, seconds - done)
        found[f"weights from {name}"] = longer, seconds - longer
        done += longer
    # Every block reads all of h, which the others wrote, from L2.
    state = HANDED * work.sequences * p.hidden
    found["h to every block"] = max(work.blocks * state / m.l2_bandwidth, waves * state / port), 0.0
    found["sums and functions"] = m.step_cycles / m.clock, 0.0
    found["hand-over"] = m.grid_sync if stays else m.launch + 2 * m.l2_latency, 0.0
    return found


def _add_layer(p: Recurrent, m: GpuMachine, point: Point, work: Work, costs: Costs) -> None:
    """Add the seconds of one layer."""
    for name, (longer, covered) in step_parts(p, m, work, point["steps"] == GRID).items():
        costs.add(name, p.steps * longer)
        if covered:
            costs.hide(f"{name}, covered", p.steps * covered)
    costs.add("launch", m.launch)
    if point["inputs"] == AHEAD:
        rows, products = p.steps * p.batch, p.gates * p.hidden * p.inputs
        compute = rows * products / (m.sms * m.lanes * m.clock)
        made = FLOAT * rows * p.gates * p.hidden  # written, then read step by step
        moved = FLOAT * (products + rows * p.inputs) + 2 * made
        costs.add("inputs ahead", m.launch + max(compute, moved / m.memory_bandwidth))
