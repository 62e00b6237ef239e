"""The cut of a recurrent layer into blocks of threads, by price.

A cut sets the units and sequences of a block, the warps along and across the rows of its weights, and the
memory that holds each weight (`kernels.cuda.recurrent.sums`). This module counts a cut's instructions and
bytes per block and time step; the model of `bslite.explore.gpu` turns them into seconds.
"""

import functools
from collections.abc import Iterator
from typing import NamedTuple

from bslite.explore.gpu import GpuMachine, Work, step_parts
from bslite.explore.problem import FLOAT, Recurrent
from bslite.kernels.contracts.cuda.recurrent import Steps, StepsWide, Tile
from bslite.plan.cuda.gemm import tiles as gemm_tiles
from bslite.plan.cuda.tuning import DEFAULT, Tuning

WARPS, LANES = 8, 32
#: The values that fit in a thread's 255 registers, counted in assembled code: weights and their places, kept
#: from step to step, and values within a step; without and with weights from L2. Before compute capability
#: 9.0 there are fewer (calls within a step, which kept values must survive, take registers there).
RECENT, RECENT_FAR = 198, 176
OLD, OLD_FAR, OLD_WITHIN, OLD_WITHIN_FAR = 64, 64, 40, 30  # in total, and within a step
STATIC = 46 << 10  # bytes of shared memory for h and partial sums that every block has
SLACK = 2 << 10  # other bytes: the driver's share and alignment
SEQUENCES = 16  # per block, at most
ROWS, SUMS = 16, 32  # per thread, at most
STAGED = 2048  # values of h that a block waits for at once: each thread has 8 reads under way
NEAR, FAR, OLD_COLUMNS = 32, 4, 2  # weights per round in shared memory; columns from L2 (from 9.0, before)
REST = 1000  # a block's other instructions, besides its sums, when launched for one step


class Cut(Tile):
    """A tile and the resources of an SM that it takes."""

    @property
    def registers(self) -> tuple[int, int]:
        """The values that a thread keeps from step to step, and the values that it has within a step.

        It keeps weights, weights on their way from L2, and where its rows begin. Within a step it has sums,
        weights on their way from shared memory, and addresses.
        """
        kept = self.rows * (self.held + self.far + (self.far > 0))
        addresses = 2 * (self.far > 0)
        return kept, max(self.rows * (self.abreast + max(self.near, addresses)), self.sums)

    @property
    def passes(self) -> int:
        """The number of passes of a block over its weights in a step."""
        return -(-self.batch // self.abreast)

    @property
    def instructions(self) -> float:
        """A thread's instructions for ``abreast`` sequences: multiply-adds, loads of h and weights, folds."""
        near, far = self.rounds * self.near, self.rounds * self.far
        levels = max(0, (self.lanes // self.sums).bit_length() - 1)
        products = self.rows * self.abreast * self.deep + self.abreast * self.deep
        return products + self.rows * (near / 4 + far) + 6 * far + 2 * (self.sums - 1 + levels)

    def fits(self, machine: GpuMachine) -> bool:
        """Return whether a block fits on an SM: registers as assembled, and shared memory."""
        if self.static > STATIC or self.static + self.dynamic + SLACK > machine.shared_bytes:
            return False
        if _recent(machine):
            return sum(self.registers) <= _most(machine, self.far)
        return self.narrow

    def kernel(self, machine: GpuMachine) -> type[Steps]:
        """Return which of the two kernels compiles to this many registers without spilling."""
        return Steps if self.narrow or not _recent(machine) else StepsWide

    @property
    def narrow(self) -> bool:
        """Return whether the registers available before compute capability 9.0 are enough."""
        kept, more = self.registers
        most, within = (OLD_FAR, OLD_WITHIN_FAR) if self.far else (OLD, OLD_WITHIN)
        return kept + more <= most and more <= within and (self.abreast == 1 or not self.far)

    def streamed(self, depth: int) -> int:
        """Return how many columns of a lane are read at every step; columns beyond ``depth`` are not."""
        return -(-depth // (self.parts * self.lanes)) - self.held - self.rounds * self.near if self.far else 0

    def work(self, machine: GpuMachine, blocks: int, stays: bool, depth: int) -> Work:
        """Return a block's work in a time step. A block launched for one step reads all weights."""
        column = FLOAT * self.rows * self.threads
        far = column * self.streamed(depth)
        first = 0 if stays else column * self.held
        of_h = FLOAT * self.abreast * self.deep * self.threads
        return Work(
            blocks,
            self.batch,
            self.passes * self.instructions * self.threads / machine.lanes,
            float(self.passes * (self.dynamic + of_h)),
            float(first + self.passes * far),
            float(first + far),
            (not stays) + (self.passes * self.rounds if far else 0),
        )


class Loops(NamedTuple):
    """The hidden units of a block, whether one launch does all time steps, and the seconds of the steps."""

    units: int
    stays: bool
    tile: Cut
    seconds: float = 0.0


def _recent(machine: GpuMachine) -> bool:
    """Return whether most of an SM's registers can keep weights."""
    return machine.register_bytes >= 128 << 10


def _most(machine: GpuMachine, far: int) -> int:
    """Return how many values fit in a thread's registers."""
    if _recent(machine):
        return RECENT_FAR if far else RECENT
    return OLD_FAR if far else OLD


def tiles(
    machine: GpuMachine, gates: int, depth: int, units: int, sequences: int, stays: bool
) -> Iterator[Cut]:
    """Return all tiles of ``gates * units`` sums of ``depth`` terms for ``sequences``, a power of two.
    ``stays``: weights may be in shared memory.
    """
    small = machine.block_threads < WARPS * LANES  # the simulator's machine has ample registers
    lanes = 2 if small else LANES
    warps = machine.block_threads // lanes if small else WARPS
    if units * sequences > warps * lanes:
        return
    parts = 1
    while parts <= warps:
        rows = -(-gates * units // (warps // parts))
        deep = -(-depth // (parts * lanes))
        if rows <= ROWS or small:
            abreast = 1
            while abreast <= sequences and (rows * abreast <= SUMS or abreast == 1):
                chunk = abreast
                while 2 * chunk <= sequences and 2 * chunk * parts * lanes * deep <= STAGED:
                    chunk *= 2
                shape = Cut(warps, lanes, parts, rows, deep, 0, 0, 0, abreast, sequences, chunk)
                if small:
                    if shape.static <= STATIC:
                        yield shape
                else:
                    yield from _placed(shape, machine, stays)
                abreast *= 2
        parts *= 2


def _placed(shape: Cut, machine: GpuMachine, stays: bool) -> Iterator[Cut]:
    """Return the tiles that fit, with columns in registers, shared memory and L2."""
    if shape.fits(machine):
        yield shape
        return
    deep = shape.deep
    for far in range((FAR if _recent(machine) else OLD_COLUMNS) + 1):
        for near in range(max(NEAR // shape.rows, 3) + 1 if stays else 1):
            if not near + far:
                continue
            bare = shape._replace(held=0, near=near, far=far)
            kept, more = bare.registers
            held = (_most(machine, far) - kept - more) // shape.rows
            if held < 0:
                continue
            rounds = -(-(deep - held) // (near + far))
            # Rounds come out even, or the last one lies beyond the end of h for a part.
            for cut in {max(0, deep - rounds * (near + far)), held}:
                if rounds > 0 and (placed := bare._replace(rounds=rounds, held=cut)).fits(machine):
                    yield placed


@functools.lru_cache(maxsize=256)
def choose(problem: Recurrent, machine: GpuMachine) -> Loops | None:
    """Return the cheapest cut that the kernel supports, or None if h is too long for it: one launch, with
    weights on chip as far as they fit, or a launch per step. Products with inputs come before.
    """
    best: Loops | None = None
    for units in _unit_counts(problem.hidden):
        for sequences in _sequence_counts(problem.batch):
            blocks = -(-problem.hidden // units) * -(-problem.batch // sequences)
            for stays in (True, False):
                if stays and blocks > machine.sms:
                    continue
                for cut in tiles(machine, problem.gates, problem.hidden, units, sequences, stays):
                    work = cut.work(machine, blocks, stays, problem.hidden)
                    parts = step_parts(problem, machine, work, stays)
                    seconds = problem.steps * sum(longer for longer, _ in parts.values())
                    seconds += machine.launch if stays else 0.0
                    if best is None or seconds < best.seconds:
                        best = Loops(units, stays, cut, seconds)
    return best


def _unit_counts(hidden: int) -> Iterator[int]:
    """Return the candidates for units of a block: for each number of blocks, the fewest."""
    return iter(sorted({-(-hidden // -(-hidden // n)) for n in range(1, min(hidden, WARPS * LANES) + 1)}))


def _sequence_counts(batch: int) -> Iterator[int]:
    """Return the candidates for sequences of a block: powers of two."""
    most = min(SEQUENCES, 1 << (batch - 1).bit_length())
    return (1 << i for i in range(most.bit_length()))


def launched(machine: GpuMachine, gates: int, units: int, depth: int, batch: int) -> Loops | None:
    """Return a block's units for a pass with its own launch: the busiest SM has the fewest instructions."""
    best: Loops | None = None
    *_, sequences = _sequence_counts(batch)
    for own in _unit_counts(units):
        turns = -(-(-(-units // own) * -(-batch // sequences)) // machine.sms)
        for cut in tiles(machine, gates, depth, own, sequences, stays=False):
            price = turns * (cut.instructions * cut.passes + REST)
            if best is None or price < best.seconds:
                best = Loops(own, False, cut, price)
    return best


def by_products(problem: Recurrent, machine: GpuMachine, tuning: Tuning = DEFAULT) -> float:
    """Return the seconds of all steps, each a product of all sequences' h with weights and a gate launch."""
    cols, weights = problem.gates * problem.hidden, FLOAT * problem.recurrent_weights
    cell = 2 if problem.hidden % 2 == 0 else 1
    from_memory = 0 if weights <= machine.l2_bytes else weights
    product = gemm_tiles.choose(
        gemm_tiles.Problem(problem.batch, cols, problem.hidden, 1, cell, from_memory), machine, tuning
    )
    gates = FLOAT * problem.batch * cols * (2 + product.parts) / machine.l2_bandwidth
    return problem.steps * (product.seconds + machine.launch + 2 * machine.l2_latency + gates)
