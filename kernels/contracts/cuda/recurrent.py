"""Records of recurrent layers' launches, and the distribution of a block's weights over its threads."""

from typing import NamedTuple

from bslite.kernels.contracts.launch import F4, I4, I8, PAIRS, LaunchRecord, LaunchVariant, Threads

FLOAT = 4  # bytes
QUAD = 4  # floats per read of shared memory


class Tile(NamedTuple):
    """A block's sums over ``warps * lanes`` threads; `kernels.cuda.recurrent.sums` explains the scheme.

    ``parts`` warps share a row of weights; a warp has ``rows`` rows. Of a lane's columns ``held`` are in
    registers; ``rounds`` of ``near`` in shared memory and ``far`` in L2 follow. A weight that is read serves
    ``abreast`` sequences, ``chunk`` sequences are staged at once, a block has ``batch``: powers of two.
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
        """The threads of a block."""
        return self.warps * self.lanes

    @property
    def deep(self) -> int:
        """The columns of a lane."""
        return self.held + self.rounds * (self.near + self.far)

    @property
    def span(self) -> int:
        """The columns of a warp."""
        return self.lanes * self.deep

    @property
    def longest(self) -> int:
        """The most values of h that fit."""
        return self.parts * self.span

    @property
    def block_rows(self) -> int:
        """The rows of a block."""
        return self.warps // self.parts * self.rows

    @property
    def quads(self) -> int:
        """The reads of shared memory in a round; the last one may be padded."""
        return -(-self.near * self.rows // QUAD)

    @property
    def cells(self) -> int:
        """The floats of shared memory for weights."""
        return self.rounds * self.quads * QUAD * self.threads

    @property
    def sums(self) -> int:
        """The size of a thread's array of sums, for all its rows and sequences: a power of two."""
        return 1 << (self.rows * self.abreast - 1).bit_length()

    @property
    def turns(self) -> int:
        """The sets of h in shared memory: two where the next sequences may come while threads use these."""
        return 2 if self.chunk < self.batch else 1

    @property
    def static(self) -> int:
        """The bytes of shared memory for h and partial sums."""
        return FLOAT * (self.turns * self.chunk * self.longest + self.warps * self.rows * self.batch)

    @property
    def dynamic(self) -> int:
        """The bytes of shared memory for weights, which the launch must request (`Kernel.dynamic`)."""
        return FLOAT * self.cells


#: A block of 256 threads whose weights are all in registers.
TILE = Tile(warps=8, lanes=32, parts=4, rows=8, held=6, rounds=0, near=0, far=0, abreast=1, batch=1, chunk=1)


class Options(LaunchVariant):
    """``kind``: a `Cell`. The others are 0 or 1; ``ragged``: sequences have lengths."""

    kind: int
    biased: int = 1
    reverse: int = 0
    ragged: int = 0
    peephole: int = 0


class RecurrentVariant(Options):
    """``tile`` is spread among the constants. ``together``: the blocks of a launch wait for each other."""

    tile: Tile = TILE
    together: int = 1

    def constants(self) -> dict[str, int]:
        """The arguments of the function that builds the kernel."""
        found = super().constants()
        tile: Tile = found.pop("tile")
        return {**found, **tile._asdict()}


class Sequences(LaunchRecord):
    """The fields that all launches of a layer's time steps share.

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


class Steps(Sequences, kernel="recurrent"):
    """Time steps ``first`` to ``stop`` of ``weights`` [gates * n, depth] for n units, ``units`` per block.

    Cells of ``state`` [2, sequences, width] and ``between`` [2, sequences, hidden] hold a value and a step
    number; ``update`` is [sequences, hidden]. ``gate`` is the pass's first gate in the products with x;
    ``zero`` is 0.
    """

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


class StepsWide(Steps, kernel="recurrent_wide"):
    """The fields of `Steps`, for a kernel that keeps up to 190 weights of a thread in registers."""


class GatesVariant(Options):
    """``threads``: the threads of a block."""

    threads: int = 256


class Gates(Sequences, kernel="recurrent_gates"):
    """Time step ``step`` of all units and sequences, from ``products`` [parts, sequences, gates * hidden].

    ``h`` [sequences, hidden] is updated in place.
    """

    products: F4
    bias: F4
    h: F4
    step: int
    parts: int


class StartVariant(Threads):
    """``threads``: the threads of a block; ``zeros``: no state is given."""

    zeros: int


class Start(LaunchRecord, kernel="recurrent_start"):
    """``state`` [2, sequences, width]: one set is the given state, for step 0; the other has no step.

    ``count`` is sequences * width; ``given_row`` and ``given_step`` are strides of ``given``.
    """

    given: F4
    state: PAIRS
    count: int
    width: int
    given_row: I8
    given_step: I8
