"""The record of a recurrent layer's time steps. Strides are in bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bslite.kernels.contracts.cpu.sweep import GemmSweep
from bslite.kernels.contracts.record import Operand, StepRecord
from bslite.kernels.contracts.recurrent import Cell

COUNTER = 64  # bytes of a counter: alone on its cache line, for every thread adds to it
Cut = tuple[int, int, int, int]  # the batch as tiles1 tiles of rows1 rows, then tiles2 of rows2


@dataclass(frozen=True)
class Recurrent(StepRecord):
    """All time steps of a layer; items are as many as threads may take part.

    Three products have panels of weights, a bias, and their terms as ``taps`` of ``depth`` contiguous floats
    at ``offsets``: those with h; of the second pass (``2``), where there is one; with x (``_x``), where these
    are not made ahead of all steps (``taps_x`` is 0 where they are).
    """

    kernel: ClassVar[str] = "recurrent"

    inputs: Operand  # [T, N] rows of the products with x, all gates of a block side by side
    state: Operand  # h: two sets of [N] rows, which change places in every step
    cell: Operand  # c: [N] rows
    between: Operand  # what the first pass leaves for the second: [N] rows
    update: Operand  # the update gate of `Cell.BEFORE`: [N] rows
    y: Operand
    work: Operand  # products of a thread
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
    y_time: int
    y_row: int
    state_row: int
    state_bytes: int  # one set of h
    row_bytes: int  # a row of the cells, of `between` and of `update`
    work_bytes: int  # of a thread; the second half is for products with x
    x_row: int
    kind: Cell
    steps: int
    batch: int
    blocks: int  # registers of hidden units, with all gates
    blocks2: int  # of the second pass; 0: there is none
    width: int  # floats of h
    hidden: int  # floats of c
    shares: int  # into which the blocks are divided: one for each thread
    reverse: int
    has_lengths: int
    has_peephole: int
    sweeps_back: int  # weights are gone through forwards and backwards in turn
    units: int  # blocks that are claimed together
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
    sweep: GemmSweep
    sweep2: GemmSweep | None
    minus_inf: float
    plus_inf: float

    @property
    def tile(self) -> str:
        """The register tile of the products with h, as ``rows x vector registers``."""
        return f"{self.cut[1]}x{self.sweep.vecs}"
