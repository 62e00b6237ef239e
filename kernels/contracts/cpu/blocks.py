"""The record of products with matrices of numbers of a few bits, block by block; strides in bytes."""

from bslite.kernels.contracts.cpu.epilogue import Epilogue
from bslite.kernels.contracts.cpu.sweep import GemmSweep
from bslite.kernels.contracts.record import Operand, StepRecord, Variant

CELL = 32  # bits of a cell, which holds neighbouring numbers of one column, the first lowest


class BlockSweep(Variant):
    """A tile of at most ``most`` rows by ``vecs`` registers that widens numbers of ``bits`` as it reads them.

    ``zeros``: each block says which number stands for zero; else it is half the range.
    """

    vecs: int
    most: int
    bits: int
    zeros: bool


class Blocks(StepRecord, kernel="blocks"):
    """A product of ``rows`` of ``terms`` numbers with a matrix whose weights are ``(q - zero) * scale``.

    Items are ``bands`` of ``band_rows`` rows x panels. A panel has the weights of ``width`` registers of
    columns, the last one those of ``tail``, and ``panel_bytes``: for each ``block`` of terms a row of scales,
    one of numbers that stand for zero if ``zeros``, and cells of as many terms as fit. Sums are of ``chunk``
    terms at a time, whole blocks of them. Up to ``few`` rows widen numbers as they read them; for more, those
    of a chunk are widened first, in scratch memory.
    """

    x: Operand
    weights: Operand
    bias: Operand
    offsets: Operand
    y: Operand
    x_row: int
    y_row: int
    rows: int
    band_rows: int
    bands: int
    columns: int
    panels: int
    width: int
    tail: int
    panel_bytes: int
    terms: int
    block: int
    chunk: int
    bits: int
    zeros: int
    few: int
    most: int
    sweep: GemmSweep
    tail_sweep: GemmSweep
    of_few: BlockSweep
    tail_of_few: BlockSweep
    minus_inf: float  # with `plus_inf`, bounds of a clamp that does nothing
    plus_inf: float
    end: Epilogue

    @property
    def tile(self) -> str:
        """The register tile as ``rows x vector registers``, at most."""
        return f"{self.most}x{self.width}"

    @property
    def beside(self) -> str:
        """How the weights lie, in words."""
        return f"weights lie in {self.bits} bits, blocks of {self.block}"
