"""The recurrent cell as one loop nest on the spatial machine (arXiv 1909.13654): its mapping, space and
price.

For each time step, for each block of ``hu`` hidden units, for each sequence: the dot products of all gates
with [x; h], ``gp`` gates at a time, each over ``ru`` PCUs of ``rv`` elements; their sums go to the hub,
through the pipeline of the gates' functions and the new state, and back into the memories that h is read
from. No gate is ever written out. A time step waits for nothing but its h: its share of the inputs is
multiplied while the h of the step before is still on its way.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

from bslite.explore.costs import Costs
from bslite.explore.problem import Recurrent
from bslite.explore.search import Estimate
from bslite.explore.space import Axis, Constraint, Point, Space
from bslite.explore.spatial import cells
from bslite.explore.spatial.array import WORD, DotArray, ceil, channel_cycles
from bslite.explore.spatial.machine import SpatialMachine
from bslite.explore.spatial.stream import spread, step_cycles


@dataclass(frozen=True)
class LoopMapping:
    """One layer's loop nest laid on the grid. ``layers`` share the weight memories."""

    problem: Recurrent  # of one layer
    machine: SpatialMachine
    hu: int
    ru: int
    rv: int
    gp: int
    layers: int = 1

    @property
    def blocks(self) -> int:
        """Blocks of hidden units in a layer."""
        return ceil(self.problem.hidden, self.hu)

    @property
    def rounds(self) -> int:
        """Rounds of gates for each block."""
        return ceil(self.problem.gates, self.gp)

    @property
    def x_chunks(self) -> int:
        """Chunks of the inputs in a dot product."""
        return ceil(self.problem.inputs, self.ru * self.rv)

    @property
    def h_chunks(self) -> int:
        """Chunks of h in a dot product."""
        return ceil(self.problem.hidden, self.ru * self.rv)

    @property
    def chunks(self) -> int:
        """Chunks of a whole dot product."""
        return self.x_chunks + self.h_chunks

    @property
    def vectors(self) -> int:
        """Vectors of hidden units in a block."""
        return ceil(self.hu, self.machine.lanes)

    def gates_in(self, turn: int) -> tuple[int, ...]:
        """The gates of a round."""
        return tuple(range(turn * self.gp, min((turn + 1) * self.gp, self.problem.gates)))

    def apart_in(self, turn: int) -> tuple[int, ...]:
        """The gates of a round whose sums over x and over h are handed over apart."""
        return tuple(g for g in self.gates_in(turn) if g in cells.APART[self.problem.kind])

    @property
    def sums(self) -> int:
        """Sums handed to the element-wise pipeline, per hidden unit."""
        return len(cells.SUMS[self.problem.kind])

    @cached_property
    def pipeline(self) -> cells.Pipeline:
        """The pipeline of the gates' functions and the new state."""
        return cells.pipeline(cells.PROGRAMS[self.problem.kind], self.machine)

    @cached_property
    def pipelines(self) -> int:
        """Copies of the pipeline, so that it keeps up with the blocks."""
        return ceil(self.vectors, self.rounds * self.chunks * self.array_interval)

    @property
    def array_interval(self) -> int:
        """Cycles per chunk."""
        return ceil(self.rv, self.machine.banks)

    @cached_property
    def array(self) -> DotArray:
        """The dot products; as many collectors as keep up with them."""
        p, m = self.problem, self.machine
        handed = ceil(self.hu * self.gp, m.lanes)
        apart = max(len(self.apart_in(r)) for r in range(self.rounds))
        if apart:
            handed += ceil(self.hu * apart, m.lanes)
        collectors = ceil(handed * self.ru, self.chunks * self.array_interval)
        adding = collectors if self.ru > 1 else 0  # one part needs no adding, only a place to be written
        # x and h twice each (one is read while the other is written), the state, a PMU per sum.
        copies = 2 * p.batch * (self.x_chunks + self.h_chunks) * self.rv * WORD
        state = ceil(2 * p.states * p.batch * p.hidden * WORD, m.pmu_bytes)
        hub_pmus = self.ru * ceil(copies, m.pmu_bytes) + state + self.sums
        hub_pcus = adding + self.pipelines * self.pipeline.pcus
        return DotArray(m, self.hu * self.gp, self.ru, self.rv, collectors, hub_pcus, hub_pmus)

    @property
    def block_bytes(self) -> int:
        """Bytes of weights in the memories of one PCU, per block."""
        return self.rounds * self.chunks * self.rv * WORD

    @cached_property
    def resident(self) -> int:
        """Blocks whose weights stay on chip; the others come from memory at every step, into two places."""
        places = self.machine.cell_bytes // self.layers // self.block_bytes
        return self.blocks if places >= self.blocks else max(0, places - 2)

    @property
    def streamed(self) -> int:
        """How many blocks come from memory at every step."""
        return self.blocks - self.resident

    @property
    def streamed_blocks(self) -> tuple[int, ...]:
        """The numbers of the blocks that come from memory at every step."""
        return spread(self.blocks, self.streamed)

    @property
    def tile_bytes(self) -> int:
        """Bytes of a block's weights, all PCUs together."""
        return self.block_bytes * self.array.pcus

    @property
    def back(self) -> int:
        """Cycles from a last chunk's read until the h it leads to can be read."""
        a = self.array
        handed = ceil(self.hu * len(self.gates_in(self.rounds - 1)), self.machine.lanes)
        through = ceil(self.vectors, self.pipelines) + self.pipeline.latency
        return a.depth + a.collecting(handed) + through + a.reach + 1

    def describe(self) -> list[str]:
        """The mapping in words, for people."""
        a, m = self.array, self.machine
        gates = f"{self.gp} gate{'s' * (self.gp > 1)}"
        lines = [
            f"{self.hu} hidden units x {gates} x {self.ru} PCUs = {a.pcus} PCUs multiply, "
            f"{a.hub_cells} cells are the hub; of {m.pcus}",
            f"{self.blocks} blocks of units, {self.chunks} chunks of {a.chunk} elements",
        ]
        if self.rounds > 1:
            lines.append(f"gates in {self.rounds} rounds: each PCU serves {self.rounds} gates in turn")
        kept = self.resident / self.blocks
        lines.append(
            f"weights: {100 * kept:.0f} % on chip"
            + (f", {self.streamed * self.tile_bytes / 1e6:.1f} MB from memory at every step" * (kept < 1))
        )
        return lines


@lru_cache(maxsize=65536)
def mapping(problem: Recurrent, machine: SpatialMachine, point: Point, layers: int = 1) -> LoopMapping:
    """The loop of one layer at a point of its space."""
    hu, ru, rv, gp = (point.number(name) for name in ("hu", "ru", "rv", "gp"))
    return LoopMapping(problem, machine, hu, ru, rv, gp, layers)


def mappings(problem: Recurrent, machine: SpatialMachine, point: Point) -> list[LoopMapping]:
    """One for each layer."""
    return [mapping(problem.layer(i), machine, point, problem.layers) for i in range(problem.layers)]


def space(problem: Recurrent, machine: SpatialMachine) -> Space:
    """The paper's parameters: hu, ru, rv, and how many gates side by side."""
    gates = [g for g in range(problem.gates, 0, -1) if problem.gates % g == 0]
    widths = [1 << i for i in range(machine.lanes.bit_length())][::-1]
    most = min(problem.hidden, machine.pcus)

    def fits(point: Point) -> str | None:
        hu, gp, ru = (point.number(name) for name in ("hu", "gp", "ru"))
        if hu * gp * ru > machine.pcus:  # most points end here, before a mapping is made
            return f"{hu} units x {gp} gates x {ru} are {hu * gp * ru} PCUs, the grid has {machine.pcus}"
        worst = [m.array.misfit() for m in mappings(problem, machine, point)]
        return next((why for why in worst if why), None)

    def lanes(point: Point) -> str | None:
        width = point.number("rv")
        if width & (width - 1) or width > machine.lanes:
            return f"rv is {width}, a PCU has {machine.lanes} lanes and its tree halves them"
        return None

    def routes(point: Point) -> str | None:
        return machine.too_few_tracks(point.number("ru") + 1)

    def parts(point: Point) -> str | None:
        gp = point.number("gp")
        return f"{gp} of {problem.gates} gates at a time" if problem.gates % gp else None

    def stages(point: Point) -> str | None:
        if machine.stages < 3 and point.number("rv") > 1:
            return f"multiply, tree and sum are three stages, a PCU has {machine.stages}"
        return None

    def memory(point: Point) -> str | None:
        for m in mappings(problem, machine, point):
            share = machine.cell_bytes // problem.layers
            if m.resident < m.blocks and share < 2 * m.block_bytes:
                return f"two blocks are {2 * m.block_bytes} bytes per PCU, its PMUs hold {share}"
        return None

    return Space(
        "loop nest on a spatial accelerator",
        (
            Axis("hu", "hidden units side by side", tuple(range(1, most + 1))),
            Axis("ru", "PCUs that share a dot product", tuple(range(1, max(2, machine.tracks)))),
            Axis("rv", "elements a PCU multiplies per cycle", tuple(widths)),
            Axis("gp", "gates side by side", tuple(gates)),
        ),
        (
            Constraint("the width is a power of two of at most the lanes", lanes),
            Constraint("a PCU has the stages of a dot product", stages),
            Constraint("gates are taken in equal rounds", parts),
            Constraint("the network has tracks for h's parts and their renewal", routes),
            Constraint("units fit the grid", fits),
            Constraint("a block's weights and the next's fit their memories", memory),
        ),
    )


def estimate(problem: Recurrent, machine: SpatialMachine, point: Point) -> Estimate:
    """Seconds of the run at this point, from the mapping alone."""
    each, cycles = mappings(problem, machine, point), Costs()
    for m in each:
        _add_layer(m, cycles)
    first = each[-1]
    notes: dict[str, float | str] = {
        "PCUs": first.array.pcus + first.array.hub_pcus,
        "weights on chip": sum(m.resident for m in each) / sum(m.blocks for m in each),
        "cycles": cycles.total,
    }
    return cycles.estimate(point, notes, 1 / machine.clock)


def _add_layer(m: LoopMapping, cycles: Costs) -> None:
    """Add the cycles of one layer."""
    p, a = m.problem, m.array
    useful = p.batch * p.weights / (a.pcus * m.rv)
    work = m.blocks * p.batch * m.rounds * m.chunks * a.interval  # cycles the array is busy in a step
    # The way round is covered by other sequences of the batch, and by the inputs' share of the next step.
    covered = ((p.batch - 1) * m.rounds * m.chunks + m.x_chunks + 1) * a.interval
    round_trip = max(0, m.back - covered)
    rate, latency = m.machine.dram_bytes_per_cycle, m.machine.dram_latency
    inputs, outputs = (channel_cycles(p.batch * n * WORD, rate) for n in (p.inputs, p.hidden))
    tile = channel_cycles(m.tile_bytes, rate)
    moved = tile * m.streamed + inputs + outputs
    step = step_cycles(work, [round_trip], m.blocks, m.streamed, tile, latency)
    # The next step's inputs are asked for when a step begins.
    period = max(step, moved, inputs + latency)
    waits = period - work - round_trip
    start = inputs + latency + (tile if m.streamed == m.blocks else 0)
    cycles.add("multiply-adds", p.steps * useful)
    cycles.add("fragmentation", p.steps * (work - useful))
    cycles.add("h on its way round", (p.steps - 1) * round_trip)
    cycles.add("waiting for memory", (p.steps if m.streamed else p.steps - 1) * waits)
    cycles.add("start and end", start + m.back - a.interval + outputs + latency)
    cycles.hide("h on its way, covered", (p.steps - 1) * min(m.back, covered))
    cycles.hide("transfers, covered", p.steps * (moved - min(moved, waits)))
