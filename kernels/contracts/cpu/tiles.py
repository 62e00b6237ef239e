"""The record of convolutions and products on a unit that multiplies tiles of bfloat16. Strides are in bytes.

A float32 is exactly the sum of three bfloat16 numbers, its *parts*: the number rounded to 8 bits, what is
left rounded to 8 bits, and the rest. The unit multiplies a tile of 16 rows of 32 terms by one of 32 terms
for 16 columns and adds to 16 x 16 float32 sums. How many products of parts are summed is the step's
arithmetic.
"""

from enum import IntEnum

from bslite.kernels.contracts.cpu.cells import Cells
from bslite.kernels.contracts.cpu.epilogue import Epilogue
from bslite.kernels.contracts.cpu.gemm import Matrices
from bslite.kernels.contracts.record import Operand, Record, StepRecord, Variant

ROWS = COLS = 16  # of a tile of sums
TERMS = 32  # that one product of tiles sums
PAIR = TERMS // 2  # terms from one of a cell of several parts to the other: a row has 16 cells of two terms
TILE = 1024  # bytes of any tile
LINE = 64  # bytes of a row of a tile: one part of 32 terms
#: Bits of float32: the least magnitude that has parts (parts of smaller ones may be below the normal range),
#: the least that is too large (its leading part is infinite), half of the last place of a part.
LEAST, MOST, HALF = (127 - 100) << 23, 0x7F7F8000, 0x8000
#: Places that weights are fetched from in turns: what a core fetches by itself stops where a page ends.
STREAMS = 4
#: Products of parts -> parts that a number is split into.
PARTS = {6: 3, 3: 2, 1: 1}
#: Products -> pairs of a part of A and one of B, 0 the leading one. Neighbours share a part, so that six
#: products take 14 loads of tiles. What is left out of the nine is below a float32's last place. The leading
#: parts come last: the others are exact until then, so that a product with one is.
PAIRS = {6: ((2, 0), (1, 0), (1, 1), (0, 1), (0, 2), (0, 0)), 3: ((1, 0), (0, 0), (0, 1)), 1: ((0, 0),)}
ROW = 2 * COLS * 4  # bytes of a row of sums of a block: two by two tiles
BLOCK = 2 * ROWS * ROW  # bytes of the sums of a block
#: Bytes of scratch memory before an item's pixels: the number of the band that they are; the thread's first
#: item of the step; tiles of a unit that is emulated; sums of a block; settings of the unit.
SPLIT, FIRST, UNIT = 0, 8, LINE
SUMS = UNIT + 8 * TILE
CONFIG = SUMS + BLOCK
HEAD = CONFIG + 64


class Reads(IntEnum):
    """What an item's pixels are in memory."""

    FLOAT32 = 0  # it splits them
    CELLS = 1  # one part, two channels to a cell: it copies them
    IN_PLACE = 2  # such cells with all zeros around them: tiles read them where they lie


class Added(IntEnum):
    """How a store adds a residual to its sums."""

    NOTHING = 0
    FLOAT32 = 1
    ROUNDED = 2  # float32 numbers, rounded to bfloat16
    CELLS = 3  # the same, as a step stored them: two channels to a cell


class TileSweep(Variant):
    """The microkernel of two by two tiles of sums that takes so many ``products`` of parts, of those that B
    has: the first ``b_parts``. The others are zeros where all numbers of B fit 16 bits, and products with
    them would change no bit.
    """

    products: int
    b_parts: int

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The products in order: a part of A and one of B."""
        return tuple((p, q) for p, q in PAIRS[self.products] if q < self.b_parts)


class OnTiles(StepRecord):
    """Base of the records of steps that call a `TileSweep`."""

    @property
    def tile(self) -> str:
        """The tile of sums as ``rows x columns``."""
        return f"{2 * ROWS}x{2 * COLS}"

    @property
    def of_parts(self) -> int:
        """Those of the microkernel."""
        return len(self._sweep.pairs)

    @property
    def arithmetic(self) -> str:
        """The same in words, and why it may be fewer."""
        all_of, found = PARTS[self._sweep.products], self._sweep.b_parts
        fewer = f"; weights have {found} of {all_of} parts" if found < all_of else ""
        return super().arithmetic + fewer

    @property
    def _sweep(self) -> TileSweep:
        return next(v for v in self.variants() if isinstance(v, TileSweep))


class Prologue(Record):
    """``min(largest, max(least, x * scale + shift))`` of each number before it is split: if ``scaled`` is 1
    without the shift, if it is 2 with it. Of each channel one, which lie side by side; strides in bytes.
    """

    scaled: int
    scale: Operand
    shift: Operand
    scale_image: int
    shift_image: int
    least: float
    largest: float

    @classmethod
    def nothing(cls, anywhere: Operand) -> "Prologue":
        """Numbers are split as they are; ``anywhere``: any operand of the step."""
        return cls(0, anywhere, anywhere, 0, 0, 0.0, 0.0)


class SplitConv(OnTiles, kernel="split_conv"):
    """A convolution, or a product of rows, whose operands are split into parts of bfloat16.

    Items are images x ``bands`` of lines x ``blocks`` of panels; the blocks are outermost if
    ``blocks_outer``. The planes of a volume, ``planes`` each, count as images. An item first splits the
    pixels that its band reads into scratch memory, unless the thread's item before did: phase by phase
    (``row_phases`` x ``col_phases``, the strides of the windows), so that windows of neighbouring outputs are
    neighbours, ``pitch`` pixels from line to line. There the outputs of all lines are one line, in which
    ``pitch - pixels`` at the end of each are not used. A pixel has ``blocks_of_terms`` times so many parts of
    32 channels for each of the ``groups``, and begins ``pixel`` bytes after the one before; a phase begins
    ``plane`` bytes after the phase before, and what the next plane of a window reads ``slab`` bytes on.
    Weights have ``b_parts`` parts.

    ``offsets`` (bytes within scratch) says where the ``steps`` blocks of 32 terms of the sum begin: all taps
    of 32 channels, then of the next 32. ``chunk`` of them are summed at a time, by themselves or, if the sum
    ``goes_on``, from those before on; by ``part`` of them, whose weights stay near while all outputs of the
    item pass. While a part meets its first 32 outputs, ``quarters`` quarters as many bytes are fetched from
    ``ahead`` bytes behind its beginning on, with the next 32 as many more, until it is four quarters
    (0, 1, 2 or 4 at a time). An item that splits its pixels fetches its first part of the weights meanwhile,
    ``first_lines`` lines of each of the streams with each pixel. Unless weights are ``far``, only those are
    fetched that the thread has not met in the step. Sums of outputs lie at ``sums`` of scratch memory,
    ``ROW`` bytes each (those of 32 at a time, where a part is the whole sum), those of a chunk that is not
    the first at ``chunk_sums``. Row r of the window of line l is row ``start + l * row_step + r`` of the
    image, which has ``rows``, and plane t of the window of plane p is plane ``deep_start + p * deep_step
    + t * deep_dilation`` of ``deep_have``; others are zeros. The last line lacks ``short`` pixels. A panel
    has the weights of 32 channels of a group. The flag is raised by numbers whose parts are not exact: NaN,
    infinities, magnitudes not below 3.396e38 and, of several parts, those whose leading part is
    below 2**-100.

    ``prologue``: what is done to numbers before they are split, of windows of one pixel.

    With ``by_chunks`` (windows of one pixel, one group) the pixels are split chunk by chunk, because whole
    ones would not stay in L2: all panels of an item pass a chunk before the next is split. ``offsets`` are
    those of a chunk, and the sums of a panel lie ``panel_sums`` bytes behind those of the one before.

    Of cells ``IN_PLACE`` nothing is split, ``offsets`` are from the window of the first output on, and
    ``pitch`` pixels make a line. With a ``run``, tiles take each line by itself, so many bytes behind the one
    before: where windows are strided, much lies between lines.
    """

    x: Operand
    y: Operand
    residual: Operand
    weights: Operand
    bias: Operand
    offsets: Operand
    reads: Reads
    added: Added
    x_image: int
    x_plane: int
    x_line: int
    x_deep: int
    x_row: int
    x_col: int
    y_image: int
    y_plane: int
    y_line: int
    y_col: int
    residual_image: int
    residual_plane: int
    residual_line: int
    residual_col: int
    images: int
    planes: int
    lines: int
    pixels: int
    short: int
    band_lines: int
    bands: int
    block_panels: int
    blocks: int
    blocks_outer: int
    panels: int
    group_panels: int
    group_channels: int
    group_weight_bytes: int
    weights_image: int
    groups: int
    depth: int
    blocks_of_terms: int
    parts: int
    b_parts: int
    steps: int
    chunk: int
    by_chunks: int
    goes_on: int
    part: int
    ahead: int
    first_lines: int
    quarters: int
    far: int
    sums: int
    panel_sums: int
    chunk_sums: int
    start: int
    row_step: int
    rows: int
    filter_rows: int  # rows from the first to the last of a window
    cols: int  # pixels that the windows of a line reach over
    deep_start: int
    deep_step: int
    deep_taps: int
    deep_dilation: int
    deep_have: int
    slab: int
    row_phases: int
    col_phases: int
    pitch: int
    run: int
    pixel: int
    plane: int
    sweep: TileSweep
    prologue: Prologue
    end: Epilogue
    stored: Cells

    @property
    def beside(self) -> str:
        """What the step makes beside its results, and what it reads, in words; empty for nothing."""
        reads = "reads them rounded" if self.reads else ""
        scales = "scales its input on the way" if self.prologue.scaled else ""
        return "; ".join(filter(None, (reads, scales, self.stored.said)))


class SplitPanels(StepRecord, kernel="split_panels"):
    """Splits matrices into ``parts`` and packs them as `SplitConv` reads them: ``[cols / 32][rows /
    32][taps][parts][2 tiles][16 cells][16 columns][2]``, zeros beyond rows and columns. ``flag``: as there.
    """

    matrices: Matrices
    flag: Operand
    parts: int
