"""The loops of a recurrent layer on this CPU: their space, what a point of it costs, and the planner's pick.

The loop nest (`kernels.cpu.recurrent.loop`): for every time step, threads claim *groups* of blocks of hidden
units; a block is one register of units with all its gates. No point changes a bit of the answer: sums are
taken in the same order everywhere.
"""

import functools
from typing import NamedTuple

from bslite.explore.problem import FLOAT, GATES, Recurrent
from bslite.explore.search import Estimate, Part, search
from bslite.explore.space import Axis, Constraint, Point, Space
from bslite.machine import Machine

#: Cycles, measured on a Zen 4: of a call of the microkernel; of a block's gates for one sequence; until a
#: group's last results are out of the pipeline and the next is claimed; of the hand-over between steps.
CALL, CELL, LATENCY, BARRIER = 230.0, {"lstm": 90.0, "gru": 65.0, "rnn": 20.0}, 200.0, 450.0
CLOCK = 3.0e9  # where none was measured
#: Of a cache that holds a part of the weights only: what is still there when the sweep comes back to it, if
#: it alternates and if it does not. (An L3 does not drop the oldest first, or the latter would be nothing.)
KEPT = (0.8, 0.4)
WIDEST = 16  # registers of a tile: more accumulators have nothing left to hide
TALLEST = 14  # rows of a tile: beyond, nothing is gained
UNROLL = 4  # steps of the sum in a turn of the microkernel's loop
GEMM = 0.85  # of the multiply-add rate, for the products with the inputs of all steps


class Loops(NamedTuple):
    """A point of the space as the planner takes it."""

    units: int  # blocks claimed together
    tile: int  # blocks of a microkernel's tile
    threads: int
    alternate: bool  # sweep the weights forwards and backwards in turn

    @classmethod
    def of(cls, point: Point) -> "Loops":
        """The parameters of a point."""
        return cls(
            point.number("units"),
            point.number("tile"),
            point.number("threads"),
            point["sweep"] == "alternating",
        )


def blocks_of(problem: Recurrent, machine: Machine) -> int:
    """Blocks of hidden units of a layer."""
    return -(-problem.hidden // machine.lanes)


def tall(machine: Machine, vecs: int) -> int:
    """The most rows of a register tile ``vecs`` wide, 0 if there is no room for one.

    A tile takes accumulators, the weights' registers and one for h. A single row reads its weights from
    memory, as operands, and needs no registers for them.
    """
    rows = (machine.registers - vecs - 1) // vecs
    return min(TALLEST, rows) if rows > 1 else int(vecs + 2 <= machine.registers)


def space(problem: Recurrent, machine: Machine) -> Space:
    """All choices of the loop nest for this problem."""
    blocks, gates = blocks_of(problem, machine), GATES[problem.kind]
    threads = sorted({1, *(t for t in (2, 4, 8, 16, 32, 64) if t < machine.threads), machine.threads})
    units = sorted({u for u in (1, 2, 4, 8, 16) if u <= blocks}, reverse=True)

    def whole(point: Point) -> str | None:
        tile = point.number("tile")
        rest = blocks % tile or point.number("units") % tile
        return f"{blocks} blocks, groups of {point['units']}, tiles of {tile}" if rest else None

    def registers(point: Point) -> str | None:
        vecs = gates * point.number("tile")
        rows = tall(machine, vecs)
        fits = rows >= min(problem.batch, 2) and (vecs <= WIDEST or point["tile"] == 1)
        return None if fits else f"{vecs} wide: {machine.registers} registers leave {rows} rows"

    def shares(point: Point) -> str | None:
        groups = -(-blocks // point.number("units"))
        return f"{groups} groups" if groups < point.number("threads") else None

    return Space(
        f"the loops of {problem} on a CPU",
        (
            Axis("units", "registers of hidden units, with all gates, that a core claims", tuple(units)),
            Axis("tile", "of them, how many one register tile of the microkernel spans", (1, 2, 4, 8)),
            Axis("threads", "cores that take part", tuple(reversed(threads))),
            Axis("sweep", "how a core goes through its weights, step by step", ("alternating", "forwards")),
        ),
        (
            Constraint("tiles cut groups, and groups the layer, without remainder", whole),
            Constraint(f"2 rows (batch 1: 1) of a tile fit the registers, at most {WIDEST} wide", registers),
            Constraint("every core has a group of its own", shares),
        ),
    )  # fmt: skip


def estimate(problem: Recurrent, machine: Machine, point: Point) -> Estimate:
    """Predicted seconds of the whole run, all layers, on ``machine``.

    A time step takes the longest core's share: its weights from the level they are found in, or the
    arithmetic if that takes longer; then calls, gates, latencies; then the hand-over.
    """
    at = Loops.of(point)
    rates = machine.measured
    clock = rates.clock if rates else CLOCK
    blocks, gates = blocks_of(problem, machine), GATES[problem.kind]
    groups = -(-blocks // at.units)
    turns = -(-groups // at.threads)  # groups of the busiest core
    mine = min(blocks, turns * at.units)
    hidden = blocks * machine.lanes
    product = weights = calls = cells = waits = ahead = 0.0
    for layer in range(problem.layers):
        ahead += 2.0 * problem.steps * problem.batch * gates * hidden * problem.features(layer)
        vecs = gates * at.tile
        product += mine / at.tile * problem.hidden * _cycles(machine, problem.batch, vecs)
        weights += FLOAT * mine * machine.lanes * gates * problem.hidden
        calls += mine / at.tile * CALL
        cells += mine * problem.batch * CELL[problem.kind] + turns * LATENCY
        waits += BARRIER if at.threads > 1 else 100.0
    resident = weights / problem.layers  # bytes that a step goes through again
    streamed = weights * _cycles_per_byte(machine, resident, at.threads, at.alternate)
    again = _tiles(machine, problem.batch, gates * at.tile)[0] - 1  # a panel is in L2 by then
    streamed += again * weights / _streams(machine, at.threads)[0]
    every = problem.steps / clock
    flops = rates.flops if rates else 2.0 * machine.lanes * machine.fma_ports * clock * machine.threads
    # A point with fewer cores still has all of them for the products ahead.
    seconds = ahead / (GEMM * flops)
    slower, faster = max(product, streamed), min(product, streamed)
    return Estimate(
        point,
        (
            Part("inputs", seconds),
            Part("arithmetic" if product > streamed else "weights", slower * every),
            Part("weights" if product > streamed else "arithmetic", faster * every, hidden=True),
            Part("calls", calls * every),
            Part("gates", cells * every),
            Part("hand-over", waits * every),
        ),
        {"bytes of a core's share": weights, "groups of a core": float(turns)},
    )


def _tiles(machine: Machine, batch: int, vecs: int) -> tuple[int, int]:
    """The tiles that the batch takes, one below the other: how many, and how many rows each has."""
    tiles = -(-batch // max(1, tall(machine, vecs)))
    return tiles, -(-batch // tiles)


def _cycles(machine: Machine, batch: int, vecs: int) -> float:
    """Cycles of one unit of depth of a tile, for all rows of the batch."""
    tiles, rows = _tiles(machine, batch, vecs)
    turn = 1.0 / UNROLL  # the loop's own instructions
    loads = rows + vecs
    each = max(rows * vecs / _ports(machine), loads / _ports(machine), machine.fma_latency)
    return tiles * (each + turn)


def columns(machine: Machine, batch: int, blocks: int) -> tuple[int, int]:
    """The registers of a tile for a product of so many ``blocks`` of one register each, and its most rows.

    The weights of a tile come from L2, again for each of the tiles that the batch takes.
    """

    def cycles(vecs: int) -> float:
        tiles, _ = _tiles(machine, batch, vecs)
        most = max(batch * vecs, batch + tiles * vecs) / _ports(machine)  # multiply-adds, loads
        stream = tiles * FLOAT * machine.lanes * vecs / machine.l2_bytes_per_cycle
        return (max(most, stream, tiles * machine.fma_latency) + tiles / UNROLL) / vecs

    best = min((t for t in (1, 2, 3, 4, 6, 8) if blocks % t == 0 and tall(machine, t)), key=cycles)
    return best, tall(machine, best)


def _ports(machine: Machine) -> float:
    """Multiply-adds of a register, and loads, per cycle and core: as measured, where it was."""
    rates = machine.measured
    if rates is None:
        return machine.fma_ports
    return rates.flops / (2.0 * machine.lanes * rates.clock * rates.threads)


def _cycles_per_byte(machine: Machine, share: float, threads: int, alternate: bool) -> float:
    """Cycles per byte of a core that reads ``share`` bytes of weights again and again, all cores at once."""
    kept = KEPT[0] if alternate else KEPT[1]
    near = 1.0 if share <= machine.l2 else kept * machine.l2 / share
    room = machine.l3 / threads
    middle = 1.0 if share <= room else max(kept * room / share, near)
    l2, l3, memory = (1.0 / x for x in _streams(machine, threads))
    return near * l2 + (middle - near) * l3 + (1.0 - middle) * memory


def _streams(machine: Machine, threads: int) -> tuple[float, float, float]:
    """Bytes per cycle and core out of L2, L3 and memory."""
    if machine.measured is None:
        shared = machine.threads / threads  # fewer cores have more of what is shared
        return (
            machine.l2_bytes_per_cycle,
            min(machine.l2_bytes_per_cycle, machine.l3_bytes_per_cycle * shared**0.5),
            min(machine.l3_bytes_per_cycle, machine.memory_bytes_per_cycle * shared**0.5),
        )
    rates = machine.measured
    per = rates.clock * rates.threads
    return rates.l2_read / per, rates.l3_read / per, rates.memory_read / per


class Explorer:
    """This module as `explore.search` takes it."""

    space = staticmethod(space)
    estimate = staticmethod(estimate)


@functools.lru_cache(1024)
def choose(problem: Recurrent, machine: Machine) -> tuple[Loops, float]:
    """The planner's pick, and its predicted seconds."""
    best = search(Explorer(), problem, machine).best
    return Loops.of(best.point), best.seconds
