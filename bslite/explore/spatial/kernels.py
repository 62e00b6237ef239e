"""The same machine run kernel by kernel, as libraries do it: mapping, space and price.

Each time step is a sequence of kernels with a barrier behind each. Matrix-vector kernels work in tiles of a
fixed number of rows and columns, and fill both up at the borders of the matrix; their results are written to
memory, and the element-wise kernels read them from there and write theirs back. The memories are the
scratchpads on the chip, configurations change in ``launch_cycles``: both flatter this way of working, which
elsewhere goes through memory outside and takes microseconds to launch.
"""

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby
from typing import cast

from bslite.explore.costs import Costs
from bslite.explore.problem import Recurrent
from bslite.explore.search import Estimate
from bslite.explore.space import Axis, Constraint, Point, Space
from bslite.explore.spatial import cells, grid
from bslite.explore.spatial.array import WORD, DotArray, ceil, channel_cycles
from bslite.explore.spatial.machine import SpatialMachine
from bslite.explore.spatial.stream import spread, step_cycles

EACH, TOGETHER = "each", "together"
X, H = "x", "h"


@dataclass(frozen=True)
class Product:
    """A matrix-vector kernel: the sums it makes, each of ``hidden`` rows, from x, h, or both."""

    sums: tuple[str, ...]
    reads: tuple[str, ...]


def products(kind: str, gates: str) -> tuple[Product, ...]:
    """Kernels that make `cells.SUMS`. The reset gate of the GRU needs what comes from h alone."""
    reads = {"snx": (X,), "snh": (H,)}
    groups = groupby(
        cells.SUMS[kind], lambda name: (reads.get(name, (X, H)), name if gates == EACH else TOGETHER)
    )
    return tuple(Product(tuple(names), read) for (read, _), names in groups)


@dataclass(frozen=True)
class Elementwise:
    """A kernel over all ``batch * hidden`` elements: ``ops`` in a pipeline, in ``copies`` copies."""

    ops: tuple[cells.Op, ...]
    pipeline: cells.Pipeline
    copies: int
    turns: int  # vectors that the busiest copy takes
    reach: int  # cycles between controller and copies


@dataclass(frozen=True)
class KernelMapping:
    """One layer's kernels. ``layers`` share the weight memories."""

    problem: Recurrent  # of one layer
    machine: SpatialMachine
    tile_rows: int
    tile_columns: int  # in PCUs
    gates: str
    pointwise: str
    layers: int = 1

    @cached_property
    def products(self) -> tuple[Product, ...]:
        """The matrix-vector kernels of a step."""
        return products(self.problem.kind, self.gates)

    @property
    def columns(self) -> int:
        """Elements of the vector that a tile takes at a time."""
        return self.tile_columns * self.machine.lanes

    def chunks(self, product: Product) -> int:
        """Tiles along a row of the matrix."""
        length = sum({X: self.problem.inputs, H: self.problem.hidden}[part] for part in product.reads)
        return ceil(length, self.columns)

    def blocks(self, product: Product) -> int:
        """Tiles along a column."""
        return ceil(len(product.sums) * self.problem.hidden, self.tile_rows)

    @cached_property
    def array(self) -> DotArray:
        """The PCUs of a tile."""
        p, m = self.problem, self.machine
        fewest = min(self.chunks(product) for product in self.products)
        collectors = ceil(ceil(self.tile_rows, m.lanes) * self.tile_columns, fewest * ceil(m.lanes, m.banks))
        adding = collectors if self.tile_columns > 1 else 0
        length = ceil(p.inputs, self.columns) + ceil(p.hidden, self.columns) + 1
        copies = 2 * 2 * p.batch * length * m.lanes * WORD  # [x; h], x and h; one read, one written
        hub_pmus = self.tile_columns * ceil(copies, m.pmu_bytes)
        return DotArray(m, self.tile_rows, self.tile_columns, m.lanes, collectors, adding, hub_pmus)

    @cached_property
    def elementwise(self) -> tuple[Elementwise, ...]:
        """The element-wise kernels of a step."""
        program, m = cells.PROGRAMS[self.problem.kind], self.machine
        groups = [program] if self.pointwise == TOGETHER else [(op,) for op in program]
        vectors = ceil(self.problem.batch * self.problem.hidden, m.lanes)
        found = []
        for ops in groups:
            pipeline = cells.pipeline(ops, m)
            copies = max(1, min(vectors, m.pcus // pipeline.pcus))
            used = min(m.pcus, copies * pipeline.pcus)
            found.append(Elementwise(ops, pipeline, copies, ceil(vectors, copies), grid.reach(m, 1, used)))
        return tuple(found)

    @cached_property
    def streamed_blocks(self) -> tuple[int, ...]:
        """Blocks of a step, over all kernels, whose weights come from memory every time, into two places."""
        counts = [(self.block_bytes(product), self.blocks(product)) for product in self.products]
        total = sum(size * count for size, count in counts)
        room = (self.machine.cell_bytes - self.vector_bytes) // self.layers
        if total <= room:
            return ()
        room -= 2 * max(size for size, _ in counts)
        if room <= 0:
            return tuple(range(self.all_blocks))
        sizes = [size for size, count in counts for _ in range(count)]

        def enough(streamed: int) -> bool:
            return total - sum(sizes[block] for block in spread(len(sizes), streamed)) <= room

        fewest = bisect_left(range(len(sizes)), True, key=enough)
        return spread(len(sizes), fewest)

    def block_bytes(self, product: Product) -> int:
        """Bytes of weights in the memories of one PCU, per block."""
        return self.chunks(product) * self.machine.lanes * WORD

    @property
    def resident(self) -> int:
        """Blocks whose weights stay on chip."""
        return self.all_blocks - len(self.streamed_blocks)

    @property
    def vector_bytes(self) -> int:
        """What each cell's share of the vectors between kernels takes."""
        p = self.problem
        vectors = len(cells.SUMS[p.kind]) + len(cells.PROGRAMS[p.kind]) + p.states
        return ceil(vectors * p.batch * p.hidden, self.machine.pcus) * WORD

    @property
    def all_blocks(self) -> int:
        """Tiles' blocks of a step, over all kernels."""
        return sum(self.blocks(product) for product in self.products)

    @property
    def product_ends(self) -> int:
        """Cycles from a product's last chunk being read to the controller knowing that all is written."""
        a = self.array
        handed = ceil(self.tile_rows, self.machine.lanes)
        return a.depth + a.collecting(handed) + a.reach + 1 + a.reach

    def elementwise_ends(self, kernel: Elementwise) -> int:
        """Cycles from the last vectors being read to the controller knowing that all is written."""
        hop = self.machine.hop_cycles
        written = hop + 1
        if kernel.ops[-1].out == H:
            # h goes back to the array's vector memories, a vector each per cycle.
            vectors = ceil(self.problem.batch * self.problem.hidden, self.machine.lanes)
            first = min(vectors, kernel.copies)
            tail = vectors - first * (kernel.turns - 1)
            queue = ceil(vectors, self.tile_columns) - (kernel.turns - 1)
            written = self.array.reach + max(queue, ceil(tail, self.tile_columns))
        return 1 + hop + kernel.pipeline.latency + written + kernel.reach


@lru_cache(maxsize=65536)
def mapping(problem: Recurrent, machine: SpatialMachine, point: Point, layers: int = 1) -> KernelMapping:
    """The kernels of one layer at a point of their space."""
    rows, columns = point.number("rows"), point.number("columns")
    gates, pointwise = cast(str, point["gates"]), cast(str, point["pointwise"])
    return KernelMapping(problem, machine, rows, columns, gates, pointwise, layers)


def mappings(problem: Recurrent, machine: SpatialMachine, point: Point) -> list[KernelMapping]:
    """The mappings of all layers."""
    return [mapping(problem.layer(i), machine, point, problem.layers) for i in range(problem.layers)]


@dataclass(frozen=True)
class KernelByKernel:
    """The explorer (`bslite.explore.search`) of this way of working, all of it or a part.

    ``gates``: each gate a kernel of its own, or as many together as a library call takes; ``pointwise``: each
    operation a kernel, or all one hand-written kernel. ``tile``: rows and columns, if they are given.
    """

    gates: tuple[str, ...] = (EACH,)
    pointwise: tuple[str, ...] = (EACH,)
    tile: tuple[int, int] | None = None

    def space(self, problem: Recurrent, machine: SpatialMachine) -> Space:
        """The axes of the space: tiles, and which kernels there are."""

        def fits(point: Point) -> str | None:
            rows, columns = point.number("rows"), point.number("columns")
            if rows * columns > machine.pcus:
                return f"{rows} rows of {columns} PCUs, the grid has {machine.pcus}"
            worst = [m.array.misfit() for m in mappings(problem, machine, point)]
            return next((why for why in worst if why), None)

        def routes(point: Point) -> str | None:
            return machine.too_few_tracks(point.number("columns") + 1)

        def memory(point: Point) -> str | None:
            for m in mappings(problem, machine, point):
                most = max(m.block_bytes(product) for product in m.products)
                room = (machine.cell_bytes - m.vector_bytes) // m.layers
                if m.resident < m.all_blocks and room < 2 * most:
                    return f"two blocks are {2 * most} bytes per PCU, its PMUs have room for {room}"
            return None

        rows, columns = tuple(range(1, machine.pcus + 1)), tuple(range(1, max(2, machine.tracks)))
        if self.tile is not None:
            rows, columns = (self.tile[0],), (self.tile[1],)
        return Space(
            "kernel by kernel on a spatial accelerator",
            (
                Axis("rows", "rows of a tile", rows),
                Axis("columns", "PCUs along a tile's row", columns),
                Axis("gates", "gates per matrix-vector kernel", self.gates),
                Axis("pointwise", "operations per element-wise kernel", self.pointwise),
            ),
            (
                Constraint("the network has tracks for the vector's parts and their renewal", routes),
                Constraint("a tile fits the grid", fits),
                Constraint("a block's weights and the next's fit their memories", memory),
            ),
        )

    def estimate(self, problem: Recurrent, machine: SpatialMachine, point: Point) -> Estimate:
        """Seconds of the run at this point, from the mapping alone."""
        each, cycles = mappings(problem, machine, point), Costs()
        for m in each:
            _add_layer(m, cycles)
        notes: dict[str, float | str] = {
            "PCUs": each[-1].array.pcus + each[-1].array.hub_pcus,
            "kernels per step": sum(len(m.products) + len(m.elementwise) for m in each),
            "weights on chip": sum(m.resident for m in each) / sum(m.all_blocks for m in each),
            "cycles": cycles.total,
        }
        return cycles.estimate(point, notes, 1 / machine.clock)


#: All of them.
ANY_KERNELS = KernelByKernel((EACH, TOGETHER), (EACH, TOGETHER))


def _add_layer(m: KernelMapping, cycles: Costs) -> None:
    """Add the cycles of one layer."""
    p, a = m.problem, m.array
    useful = p.batch * p.weights / (a.pcus * m.machine.lanes)
    work = sum(m.blocks(q) * m.chunks(q) for q in m.products) * p.batch * a.interval
    launch = m.machine.launch_cycles
    begins = launch + a.reach
    ends = m.product_ends + 1 - a.interval
    others = m.elementwise
    turns = sum(kernel.turns for kernel in others)
    others_begin = sum(launch + kernel.reach for kernel in others)
    others_end = sum(m.elementwise_ends(kernel) for kernel in others)
    # The array waits between products, and longer where the element-wise kernels run.
    gaps = [float(begins + ends)] * len(m.products)
    gaps[-1] += turns + others_begin + others_end
    rate, latency = m.machine.dram_bytes_per_cycle, m.machine.dram_latency
    inputs, outputs = (channel_cycles(p.batch * n * WORD, rate) for n in (p.inputs, p.hidden))
    each = [q for q in m.products for _ in range(m.blocks(q))]
    tiles = sum(channel_cycles(m.block_bytes(each[b]) * a.pcus, rate) for b in m.streamed_blocks)
    count = len(m.streamed_blocks)
    step = step_cycles(work, gaps, len(each), count, tiles / max(1, count), latency)
    moved = tiles + inputs + outputs
    waits = max(step, moved, inputs + latency) - work - sum(gaps)
    cycles.add("multiply-adds", p.steps * useful)
    cycles.add("fragmentation", p.steps * (work - useful))
    cycles.add("element-wise kernels", p.steps * turns)
    cycles.add("starting kernels", p.steps * (begins * len(m.products) + others_begin))
    cycles.add("finishing kernels, results to memory", p.steps * (ends * len(m.products) + others_end))
    cycles.add("waiting for memory", p.steps * waits)
    cycles.add("start and end", inputs + latency + outputs + latency)
    cycles.hide("transfers, covered", p.steps * (moved - min(moved, waits)))
