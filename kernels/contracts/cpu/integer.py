"""Records of steps on pairs and quads: cells of two numbers of int16, or of four of 8 bits
(`bslite.ops.integer`). Strides are in bytes.
"""

from enum import IntEnum

from bslite.kernels.contracts.cpu.gemm import Cut, Windows
from bslite.kernels.contracts.cpu.rows import RowAxes
from bslite.kernels.contracts.record import Operand, StepRecord, Variant


class IntSweep(Variant):
    """Tiles of sums of products of pairs or of quads, of at most ``most`` rows by ``vecs`` registers."""

    vecs: int
    most: int
    quads: bool


class ByteSweep(Variant):
    """Tiles of sums of products of pairs by weights of int8, two bytes to a lane of a panel."""

    vecs: int
    most: int


class Made(IntEnum):
    """What becomes of a sum."""

    SUM = 0
    REAL = 1
    PAIRS = 2
    QUADS = 3


class IntConv(StepRecord, kernel="int_conv"):
    """A convolution or a linear layer of cells: int32 sums over taps of ``depth`` cells, then `finish`.

    With ``extra_rows``, there are more weights at ``extras``. For each panel: where each of ``extra_rows``
    rows of the filter begins in a list, where the last ends, and how many bytes from ``extras`` the panel's
    weights are. Then the list: for each register or more of weights the number of the cell of the panel, of
    ``taps`` times ``depth``, that they multiply. Scratch memory has room for their offsets at ``extra_at``.

    Fields mean what they mean in `Conv`. ``offset``, ``scale`` and ``shift`` are registers for each panel;
    ``factor`` multiplies ``scale`` where ``has_factor``. In scratch memory are the sums of a line, pixels
    ``acc_col`` apart, and at ``scaled`` the scales times the factor.

    A sum times ``scale`` plus ``shift`` is cut to [low1, high1], and rounded to even if ``rounds1``. Then it
    is multiplied by ``own``, the residual times ``other`` is added, and the same is done with [low2, high2].
    Steps of rounding are divided out of all these numbers. Quads hold what is rounded less ``least``; those
    of the residual (``adds_quads``) hold numbers less ``under``.
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
    extras: Operand
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
    least: float
    adds_quads: int
    under: float
    extra_rows: int
    extra_at: int

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


class Quads(StepRecord, kernel="quads"):
    """Rows of ``groups`` times ``channels`` numbers of float32, less ``least``, become rows of quads."""

    source: Operand
    target: Operand
    along: RowAxes
    groups: int
    channels: int
    least: float
