"""Records of recurrent layers' launches, and how a block's weights are shared out over its threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from bslite.kernels.contracts.launch import F4, I4, I8, PAIRS, LaunchRecord, LaunchVariant

FLOAT = 4  # bytes
QUAD = 4  # floats of one read of shared memory


class Tile(NamedTuple):
    """How a block of ``warps * lanes`` threads takes its sums; `kernels.cuda.recurrent.sums` explains it.

    ``parts`` warps share a row of weights, ``rows`` rows are a warp's. Of a lane's columns ``held`` are in
    registers; ``rounds`` of ``near`` in shared memory and ``far`` in L2 follow. A weight meets ``abreast``
    sequences when it is read, ``chunk`` sequences are staged at once, ``batch`` are a block's: powers of two.
    """

    warps: int
    lanes: int
    parts: int
    rows: int
    held: int
    rounds: int
    near: int
    far: int
    abreast: int
    batch: int
    chunk: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.warps * self.lanes

    @property
    def deep(self) -> int:
        """Columns of a lane."""
        return self.held + self.rounds * (self.near + self.far)

    @property
    def span(self) -> int:
        """Columns of a warp."""
        return self.lanes * self.deep

    @property
    def longest(self) -> int:
        """Values of h that there is room for."""
        return self.parts * self.span

    @property
    def block_rows(self) -> int:
        """Rows of a block."""
        return self.warps // self.parts * self.rows

    @property
    def quads(self) -> int:
        """Reads of shared memory in a round; the last one may be filled up."""
        return -(-self.near * self.rows // QUAD)

    @property
    def cells(self) -> int:
        """Floats of shared memory for weights."""
        return self.rounds * self.quads * QUAD * self.threads

    @property
    def sums(self) -> int:
        """Room for a thread's sums, of all its rows and sequences: a power of two."""
        return 1 << (self.rows * self.abreast - 1).bit_length()

    @property
    def turns(self) -> int:
        """Sets of h in shared memory: two where the next sequences may come while threads use these."""
        return 2 if self.chunk < self.batch else 1

    @property
    def static(self) -> int:
        """Bytes of shared memory for h and partial sums."""
        return FLOAT * (self.turns * self.chunk * self.longest + self.warps * self.rows * self.batch)

    @property
    def dynamic(self) -> int:
        """Bytes of shared memory for weights, which the launch must ask for (`Kernel.dynamic`)."""
        return FLOAT * self.cells


#: A block of 256 threads whose weights are all in registers.
TILE = Tile(warps=8, lanes=32, parts=4, rows=8, held=6, rounds=0, near=0, far=0, abreast=1, batch=1, chunk=1)


@dataclass(frozen=True)
class Options(LaunchVariant):
    """``kind``: a `Cell`. The others are 0 or 1; ``ragged``: sequences have lengths."""

    kind: int
    biased: int = 1
    reverse: int = 0
    ragged: int = 0
    peephole: int = 0


@dataclass(frozen=True)
class RecurrentVariant(Options):
    """``tile`` is written out among the constants. ``together``: a launch's blocks wait for each other."""

    tile: Tile = TILE
    together: int = 1

    def constants(self) -> dict[str, int]:
        """The arguments of the function that makes the kernel."""
        found = super().constants()
        tile: Tile = found.pop("tile")
        return {**found, **tile._asdict()}


@dataclass(frozen=True)
class Sequences(LaunchRecord):
    """What all launches of a layer's time steps have in common.

    ``inputs`` [steps * sequences, inputs_row]: the products with x. ``cell`` [sequences, hidden]: c. ``y``
    [steps + states, sequences, ...] has strides ``y_time, y_row`` (elements).
    """

    inputs: F4
    cell: F4
    peepholes: F4
    y: F4
    lengths: I4
    flag: I4
    steps: int
    sequences: int
    hidden: int
    inputs_row: int
    y_time: I8
    y_row: I8


@dataclass(frozen=True)
class Steps(Sequences):
    """Time steps ``first`` to ``stop`` of ``weights`` [gates * n, depth] for n units, ``units`` to a block.

    ``state`` [2, sequences, width] and ``between`` [2, sequences, hidden] are cells of a value and a step
    number, ``update`` is [sequences, hidden]. ``gate`` is the first of the products with x that the pass
    takes; ``zero`` is 0.
    """

    kernel: ClassVar[str] = "recurrent"

    weights: F4
    bias: F4
    state: PAIRS
    between: PAIRS
    update: F4
    first: int
    stop: int
    depth: int
    width: int
    units: int
    gate: int
    zero: int = 0


@dataclass(frozen=True)
class StepsWide(Steps):
    """As `Steps`, by a kernel that keeps up to 190 weights of a thread in registers."""

    kernel: ClassVar[str] = "recurrent_wide"


@dataclass(frozen=True)
class GatesVariant(Options):
    """``threads`` of a block."""

    threads: int = 256


@dataclass(frozen=True)
class Gates(Sequences):
    """Time step ``step`` of all units and sequences, from ``products`` [parts, sequences, gates * hidden].

    ``h`` [sequences, hidden] is changed in place.
    """

    kernel: ClassVar[str] = "recurrent_gates"

    products: F4
    bias: F4
    h: F4
    step: int
    parts: int


@dataclass(frozen=True)
class StartVariant(LaunchVariant):
    """``threads`` of a block; ``zeros``: no state is given."""

    threads: int
    zeros: int


@dataclass(frozen=True)
class Start(LaunchRecord):
    """``state`` [2, sequences, width]: what is given for step 0; the other set is for no step at all.

    ``count`` is sequences * width; ``given_row`` and ``given_step`` are strides of ``given``.
    """

    kernel: ClassVar[str] = "recurrent_start"

    given: F4
    state: PAIRS
    count: int
    width: int
    given_row: I8
    given_step: I8
