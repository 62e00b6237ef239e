"""Records of steps on pairs: cells of two numbers of int16 (`bslite.ops.integer`). Strides are in bytes."""

from enum import IntEnum

from bslite.kernels.contracts.cpu.gemm import Cut, Windows
from bslite.kernels.contracts.cpu.rows import RowAxes
from bslite.kernels.contracts.record import Operand, StepRecord, Variant


class IntSweep(Variant):
    """Tiles of sums of products of pairs, of at most ``most`` rows by ``vecs`` vector registers."""

    vecs: int
    most: int


class Made(IntEnum):
    """What becomes of a sum."""

    SUM = 0
    REAL = 1
    PAIRS = 2


class IntConv(StepRecord, kernel="int_conv"):
    """A convolution or a linear layer of pairs: int32 sums over taps of ``depth`` cells, then `finish`.

    Fields mean what they mean in `Conv`. ``offset``, ``scale`` and ``shift`` are registers for each panel;
    ``factor`` multiplies ``scale`` where ``has_factor``. In scratch memory are the sums of a line, pixels
    ``acc_col`` apart, and at ``scaled`` the scales times the factor.

    A sum times ``scale`` plus ``shift`` is cut to [low1, high1], and rounded to even if ``rounds1``. Then it
    is multiplied by ``own``, the residual times ``other`` is added, and the same is done with [low2, high2].
    Steps of rounding are divided out of all these numbers.
    """

    x: Operand
    y: Operand
    residual: Operand
    weights: Operand
    offset: Operand
    scale: Operand
    shift: Operand
    factor: Operand
    offsets: Operand
    has_residual: int
    has_factor: int
    x_image: int
    x_line: int
    x_col: int
    y_image: int
    y_line: int
    y_col: int
    residual_image: int
    residual_line: int
    residual_col: int
    images: int
    lines: int
    band_lines: int
    bands: int
    block_panels: int
    blocks: int
    blocks_outer: int
    panels: int
    taps: int
    depth: int
    windows: Windows
    row_taps: int
    filter_rows: int
    plane_lines: int
    x_plane: int
    y_plane: int
    residual_plane: int
    group_panels: int
    group_channels: int
    x_group_bytes: int
    group_weight_bytes: int
    width: int
    tail_vecs: int
    cut: Cut
    sweep: IntSweep
    tail_sweep: IntSweep
    acc_col: int
    scaled: int
    made: Made
    low1: float
    high1: float
    rounds1: int
    own: float
    other: float
    low2: float
    high2: float
    rounds2: int

    @property
    def tile(self) -> str:
        """The register tile as ``rows x vector registers``."""
        return f"{self.cut.rows1}x{self.width}"


class Pairs(StepRecord, kernel="pairs"):
    """Rows of ``groups`` times ``channels`` numbers of float32 become rows of pairs.

    With ``scaled``, ``x / scale`` is rounded and cut to ``[-zero, 255 - zero]``.
    """

    source: Operand
    target: Operand
    scale: Operand
    zero: Operand
    scaled: int
    along: RowAxes
    groups: int
    channels: int
