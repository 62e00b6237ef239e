"""The record of a recurrent layer's time steps. Strides are in bytes."""

from bslite.kernels.contracts.cpu.integer import ByteSweep, IntSweep
from bslite.kernels.contracts.cpu.sweep import GemmSweep
from bslite.kernels.contracts.record import Operand, StepRecord
from bslite.kernels.contracts.recurrent import Cell

COUNTER = 64  # bytes of a counter: every thread adds to it, so it has a cache line to itself
Cut = tuple[int, int, int, int]  # the batch as tiles1 tiles of rows1 rows, then tiles2 of rows2


class Recurrent(StepRecord, kernel="recurrent"):
    """All time steps of a layer; there are as many items as threads may take part.

    Up to three products each have panels of weights, a bias, and their terms as ``taps`` of ``depth``
    contiguous floats at ``offsets``: the products with h; those of the second pass (``2``), where there is
    one; and those with x (``_x``), whose ``taps_x`` is 0 where they are computed ahead of all steps.
    """

    inputs: Operand  # [T, N] rows of the products with x
    state: Operand  # h: two sets of [N] rows, which swap in every step
    cell: Operand  # c: [N] rows
    between: Operand  # the results of the first pass that the second reads: [N] rows
    update: Operand  # the update gate of `Cell.BEFORE`: [N] rows
    rounded: Operand  # h as pairs, [N] rows for each thread, where `rounds`
    scale: Operand  # of a block's integer weights, laid out as the bias, where `rounds`
    y: Operand
    work: Operand  # the products of a thread
    weights: Operand
    bias: Operand
    offsets: Operand
    weights2: Operand
    bias2: Operand
    offsets2: Operand
    x: Operand
    weights_x: Operand
    bias_x: Operand
    offsets_x: Operand
    peephole: Operand
    lengths: Operand
    counters: Operand  # for every pass: items finished, and groups claimed of each share
    flag: Operand
    inputs_row: int
    inputs_block: int  # from a block's products with x to the next one's,
    inputs_gate: int  # and from a gate's to the next one's
    rounded_row: int
    y_time: int
    y_row: int
    keeps: int  # bytes of what is kept of a sequence's time step, before h in the same row; 0: nothing is
    last_c: int  # from the last h to the last c
    state_row: int
    state_bytes: int  # one set of h
    row_bytes: int  # a row of the cells, of `between` and of `update`
    work_bytes: int  # of a thread; the second half is for products with x
    x_row: int
    kind: Cell
    steps: int
    batch: int
    blocks: int  # registers of hidden units, with all gates
    blocks2: int  # of the second pass; 0 where there is none
    width: int  # floats of h
    hidden: int  # floats of c
    shares: int  # the parts that the blocks are divided into, one for each thread
    reverse: int
    has_lengths: int
    has_peephole: int
    sweeps_back: int  # sweeps over the weights alternate between forwards and backwards
    rounds: int  # h is rounded to 8 bits before the product, which is one of integers, as pairs
    weight_register: int  # bytes of a register of weights of the product with h
    units: int  # blocks that a thread claims together
    tile_units: int  # blocks of a microkernel's tile
    units2: int
    tile_units2: int
    taps: int
    chunk_taps: int
    depth: int
    taps2: int
    chunk_taps2: int
    depth2: int
    taps_x: int
    chunk_taps_x: int
    depth_x: int
    cut: Cut
    cut_second: Cut
    sweep: GemmSweep | IntSweep | ByteSweep
    sweep2: GemmSweep | None
    minus_inf: float
    plus_inf: float

    @property
    def tile(self) -> str:
        """The register tile of the products with h, as ``rows x vector registers``."""
        return f"{self.cut[1]}x{self.sweep.vecs}"


class PackGates(StepRecord, kernel="pack_gates"):
    """Packs weights ``[gates, hidden, depth]`` as panels ``[tiles][depth][tile_units][gates][lanes]``, zeros
    beyond ``hidden``; an item is a panel.
    """

    source: Operand
    target: Operand
    x_row: int  # along the depth
    x_col: int  # along the hidden units
    gate_bytes: int
    gates: int
    hidden: int
    depth: int
    tile_units: int


class RecurrentDeltas(StepRecord, kernel="recurrent_deltas"):
    """All time steps of a layer backwards; there are as many items as threads may take part.

    The products of deltas have panels of weights and their terms as ``taps`` of ``depth`` contiguous floats
    at ``offsets``; those of the second pass (``2``) where there is one.
    """

    kept: Operand  # [T + 1, N] rows of gates and state, h last
    grad: Operand  # [T + states, N] rows
    made: Operand  # [T, N] rows of ``sums`` deltas; with ``has_start`` a row more
    state: Operand  # the deltas of a product: two sets of [N] rows, which swap in every step
    carry: Operand  # the gradient of c, or what passes by the product to a GRU's h: [N] rows
    between: Operand  # the deltas that the second pass multiplies: [N] rows
    start: Operand  # h before the first step, of an LSTM c: [N] rows, where ``has_start``
    work: Operand  # the products of a thread
    weights: Operand
    bias: Operand  # zeros
    offsets: Operand
    weights2: Operand
    offsets2: Operand
    lengths: Operand
    counters: Operand  # for every pass: items finished, and groups claimed of each share
    flag: Operand
    kept_time: int
    kept_row: int
    keeps: int  # from the first gate to h
    grad_time: int
    grad_row: int
    made_time: int
    made_row: int
    state_row: int
    state_bytes: int  # one set
    row_bytes: int  # a row of `carry` and of `between`
    start_row: int
    work_bytes: int  # of a thread
    kind: Cell
    steps: int
    passes: int
    batch: int
    blocks: int  # registers of hidden units
    hidden: int
    sums: int
    shares: int  # the parts that the blocks are divided into, one for each thread
    reverse: int
    has_lengths: int
    has_start: int
    units: int  # blocks that a thread claims together
    tile_units: int  # blocks of a microkernel's tile
    taps: int
    chunk_taps: int
    depth: int
    taps2: int
    chunk_taps2: int
    depth2: int
    cut: Cut
    sweep: GemmSweep
    minus_inf: float
    plus_inf: float

    @property
    def tile(self) -> str:
        """The register tile of the products, as ``rows x vector registers``."""
        return f"{self.cut[1]}x{self.sweep.vecs}"
