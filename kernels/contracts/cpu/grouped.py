"""The record of products of rows in groups, whose sizes are known only while running; strides in bytes."""

from bslite.kernels.contracts.cpu.sweep import GemmSweep
from bslite.kernels.contracts.record import Operand, StepRecord


class Grouped(StepRecord, kernel="grouped"):
    """A product of rows with a matrix for each group of them, whose ``ends``, int32 cells, are a value.

    Items are the ``groups`` and what lies behind them, times ``blocks`` of ``block_panels`` panels. Sums are
    those of `Conv`, as are weights: of ``taps`` parts of ``depth`` terms, ``chunk_taps`` of them at a time.
    """

    x: Operand
    ends: Operand
    weights: Operand
    bias: Operand
    offsets: Operand
    y: Operand
    x_row: int
    y_row: int
    end_step: int
    rows: int
    groups: int
    group_bytes: int
    register_bytes: int
    columns: int
    taps: int
    chunk_taps: int
    depth: int
    width: int
    tail: int
    panels: int
    block_panels: int
    blocks: int
    most: int
    sweep: GemmSweep
    tail_sweep: GemmSweep
    lo: float
    hi: float

    @property
    def tile(self) -> str:
        """The register tile as ``rows x vector registers``, at most."""
        return f"{self.most}x{self.width}"

    @property
    def beside(self) -> str:
        """How the weights lie, in words; empty for float32."""
        return self.sweep.narrow.said
