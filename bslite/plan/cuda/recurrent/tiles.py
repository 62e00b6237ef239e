"""How a recurrent layer is cut into blocks of threads: units and sequences of a block, warps along and across
the rows of its weights, and where each weight is (`kernels.cuda.recurrent.sums`): all by price.

What a cut costs is counted here, instructions and bytes of a block in a time step; how long that takes, the
model of `bslite.explore.gpu` says.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

from bslite.explore.gpu import GpuMachine, Work, step_parts
from bslite.explore.problem import FLOAT, Recurrent
from bslite.kernels.contracts.cuda.recurrent import Steps, StepsWide, Tile
from bslite.plan.cuda.gemm import tiles as gemm_tiles

WARPS, LANES = 8, 32
#: What a thread's 255 registers have room for, counted in assembled code: weights and their places, from one
#: step to the next, and what is needed within a step; without and with weights from L2. Before compute
#: capability 9.0 less (calls within a step, which kept values must survive, take registers there).
RECENT, RECENT_FAR = 198, 176
OLD, OLD_FAR, OLD_WITHIN, OLD_WITHIN_FAR = 64, 64, 40, 30  # all, and what is needed within a step
STATIC = 46 << 10  # bytes of shared memory for h and partial sums, which a block has without asking
SLACK = 2 << 10  # bytes besides: what the driver and alignments take
SEQUENCES = 16  # of a block at most
ROWS, SUMS = 16, 32  # of a thread at most
STAGED = 2048  # values of h that a block waits for at once: 8 reads under way for each thread
NEAR, FAR, OLD_COLUMNS = 32, 4, 2  # weights of a round in shared memory, columns from L2 (now, before 9.0)
REST = 1000  # instructions of a block launched for one step besides its sums


class Cut(Tile):
    """A tile with what it takes of an SM."""

    @property
    def registers(self) -> tuple[int, int]:
        """Values that a thread keeps from step to step, and values that it has within a step.

        It keeps weights, weights on their way from L2, and where its rows begin. Within a step it has sums,
        weights on their way from shared memory, and addresses.
        """
        kept = self.rows * (self.held + self.far + (self.far > 0))
        addresses = 2 * (self.far > 0)
        return kept, max(self.rows * (self.abreast + max(self.near, addresses)), self.sums)

    @property
    def passes(self) -> int:
        """Times that a block goes through its weights in a step."""
        return -(-self.batch // self.abreast)

    @property
    def instructions(self) -> float:
        """Of a thread for ``abreast`` sequences: multiply-adds, loads of h and of weights, folding."""
        near, far = self.rounds * self.near, self.rounds * self.far
        levels = max(0, (self.lanes // self.sums).bit_length() - 1)
        products = self.rows * self.abreast * self.deep + self.abreast * self.deep
        return products + self.rows * (near / 4 + far) + 6 * far + 2 * (self.sums - 1 + levels)

    def fits(self, machine: GpuMachine) -> bool:
        """Whether a block of it has room on an SM: registers as assembled, shared memory."""
        if self.static > STATIC or self.static + self.dynamic + SLACK > machine.shared_bytes:
            return False
        if _recent(machine):
            return sum(self.registers) <= _most(machine, self.far)
        return self.narrow

    def kernel(self, machine: GpuMachine) -> type[Steps]:
        """Which of the two kernels compiles to so many registers without spilling."""
        return Steps if self.narrow or not _recent(machine) else StepsWide

    @property
    def narrow(self) -> bool:
        """Whether the registers that there are before compute capability 9.0 are enough."""
        kept, more = self.registers
        most, within = (OLD_FAR, OLD_WITHIN_FAR) if self.far else (OLD, OLD_WITHIN)
        return kept + more <= most and more <= within and (self.abreast == 1 or not self.far)

    def streamed(self, depth: int) -> int:
        """Columns of a lane that are read at every step: what is beyond ``depth`` is not."""
        return -(-depth // (self.parts * self.lanes)) - self.held - self.rounds * self.near if self.far else 0

    def work(self, machine: GpuMachine, blocks: int, stays: bool, depth: int) -> Work:
        """What a block of it does in a time step. Launched for one step it reads all weights."""
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
    """Hidden units of a block, and whether one launch does all time steps; seconds of the steps."""

    units: int
    stays: bool
    tile: Cut
    seconds: float = 0.0


def _recent(machine: GpuMachine) -> bool:
    """Whether most of an SM's registers can keep weights."""
    return machine.register_bytes >= 128 << 10


def _most(machine: GpuMachine, far: int) -> int:
    """Values that a thread's registers have room for."""
    if _recent(machine):
        return RECENT_FAR if far else RECENT
    return OLD_FAR if far else OLD


def tiles(
    machine: GpuMachine, gates: int, depth: int, units: int, sequences: int, stays: bool
) -> Iterator[Cut]:
    """All ways for a block to take ``gates * units`` sums of ``depth`` terms, for ``sequences``, a power of
    two; ``stays``: weights may be in shared memory.
    """
    small = machine.block_threads < WARPS * LANES  # the simulator's machine: registers are not scarce there
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
    """The tile with its columns in registers, shared memory and L2; those that fit."""
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
            # Rounds that come out even, or a last one that is beyond the end of h for a part.
            for cut in {max(0, deep - rounds * (near + far)), held}:
                if rounds > 0 and (placed := bare._replace(rounds=rounds, held=cut)).fits(machine):
                    yield placed


@functools.lru_cache(maxsize=256)
def choose(problem: Recurrent, machine: GpuMachine) -> Loops | None:
    """The cheapest of all cuts that the kernel can do: in one launch, with weights on chip as far as they
    fit, or by a launch per step; products with inputs ahead. None if h is too long for the kernel.
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
    """Units of a block: of all that make as many blocks, the fewest."""
    return iter(sorted({-(-hidden // -(-hidden // n)) for n in range(1, min(hidden, WARPS * LANES) + 1)}))


def _sequence_counts(batch: int) -> Iterator[int]:
    """Sequences of a block: powers of two."""
    most = min(SEQUENCES, 1 << (batch - 1).bit_length())
    return (1 << i for i in range(most.bit_length()))


def launched(machine: GpuMachine, gates: int, units: int, depth: int, batch: int) -> Loops | None:
    """Units of a block of a pass that is launched for itself: the fewest instructions of the busiest SM."""
    best: Loops | None = None
    *_, sequences = _sequence_counts(batch)
    for own in _unit_counts(units):
        turns = -(-(-(-units // own) * -(-batch // sequences)) // machine.sms)
        for cut in tiles(machine, gates, depth, own, sequences, stays=False):
            price = turns * (cut.instructions * cut.passes + REST)
            if best is None or price < best.seconds:
                best = Loops(own, False, cut, price)
    return best


def by_products(problem: Recurrent, machine: GpuMachine) -> float:
    """Seconds of all steps, each a product of all sequences' h with the weights, and a launch for gates."""
    cols, weights = problem.gates * problem.hidden, FLOAT * problem.recurrent_weights
    cell = 2 if problem.hidden % 2 == 0 else 1
    from_memory = 0 if weights <= machine.l2_bytes else weights
    product = gemm_tiles.choose(
        gemm_tiles.Problem(problem.batch, cols, problem.hidden, 1, cell, from_memory), machine
    )
    gates = FLOAT * problem.batch * cols * (2 + product.parts) / machine.l2_bandwidth
    return problem.steps * (product.seconds + machine.launch + 2 * machine.l2_latency + gates)
