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

    Fields mean what they mean in `Conv`. ``offset``, ``scale`` and ``shift`` are registers for each panel.
    ``factor`` multiplies ``scale`` where ``has_factor``. ``acc_col`` is the stride of the sums of a line in
    scratch memory. A sum is rounded up to twice, with a residual in between: a clamp, then ``t / step``
    rounded to even and cut to 256 numbers from ``least`` on; ``rounds`` is 0 for the clamp alone, 1 where
    ``step`` is 1, else 2, and ``inverse`` is ``1 / step``.
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
    made: Made
    low1: float
    high1: float
    rounds1: int
    step1: float
    inverse1: float
    least1: float
    own: float
    other: float
    low2: float
    high2: float
    rounds2: int
    step2: float
    inverse2: float
    least2: float

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
