"""Records of steps that multiply and add: convolutions and products. Strides are in bytes."""

from bslite.kernels.contracts.cpu.cells import Cells
from bslite.kernels.contracts.cpu.epilogue import Epilogue
from bslite.kernels.contracts.cpu.sweep import DepthwiseSweep, GemmSweep, Narrow, UnpackedSweep, Widen
from bslite.kernels.contracts.record import Operand, Record, StepRecord, Three, Two


class Cut(Record):
    """A line of pixels: ``tiles1`` register tiles of ``rows1`` pixels, then ``tiles2`` of ``rows2``."""

    tiles1: int
    rows1: int
    tiles2: int
    rows2: int

    @property
    def pixels(self) -> int:
        """Of the line."""
        return self.tiles1 * self.rows1 + self.tiles2 * self.rows2


class Windows(Record):
    """The rows of the image under each window, for windows that may leave the image.

    The window of line 0 starts at row ``start``; ``row_step`` rows lie between the windows of neighbouring
    lines; the image has ``rows`` rows. With ``clip_planes``, planes of the filter are left out of the sum,
    and all "rows" are planes.
    """

    start: int = 0
    row_step: int = 0
    row_dilation: int = 1
    rows: int = 0
    clip_planes: int = 0


class PlaneRows(Record):
    """The rows of a plane under each window, where planes that are outside are left out: as `Windows` has
    them. A row has ``row_entries`` taps, or all rows are inside and it is 0.
    """

    top: int = 0
    down: int = 0
    down_dilation: int = 1
    plane_rows: int = 0
    plane_filter_rows: int = 0
    row_entries: int = 0


class Columns(Record):
    """The columns under each window, for windows that reach far beyond the sides of the image.

    The window of pixel p of line l begins at column ``left + (l * line_pixels + p) * across``; the image has
    ``columns``. A filter row has ``filter_cols`` taps of ``tap_entries`` each, which are summed one by one,
    for the pixels that have a column there; a register tile has at most ``most_rows`` of them.
    ``tap_entries`` is 0 where no column is left out.
    """

    left: int = 0
    across: int = 0
    across_dilation: int = 1
    columns: int = 0
    filter_cols: int = 1
    tap_entries: int = 0
    line_pixels: int = 0
    most_rows: int = 1


class Turned(Record):
    """Where results go whose channels are not neighbours in memory, if ``has_turned``: pixels are.

    A line's results lie in scratch memory until they are turned. Strides are in bytes.
    """

    turned: Operand
    has_turned: int = 0
    turned_image: int = 0
    turned_plane: int = 0
    turned_line: int = 0
    turned_channel: int = 0


class Conv(StepRecord, kernel="conv"):
    """A convolution, a linear layer or a product: sums over taps of ``depth`` contiguous floats.

    Items are images x ``bands`` of lines x ``blocks`` of panels; the blocks are outermost if
    ``blocks_outer``. A panel holds the weights of ``width`` vector registers of channels, the last panel
    of a group those of ``tail_vecs``; a register of them has ``register_bytes`` in memory. ``offsets``
    says where each tap begins; the kernel sums ``chunk_taps`` of them at a time. Where lanes run along
    the sum, the weights of a tap have ``across_bytes``, else that is 0. ``row_taps`` is the number of
    taps of a filter row (or plane), 0 where all windows are inside. Where rows in planes, or columns, are
    left out, too, no sum of ``chunk_taps`` spans two planes, or taps. Lines are those of all planes of a
    volume, ``plane_lines`` each; they are numbered strip by strip, where a plane is cut into ``strips``:
    the first strip of each plane, then the second of each. Where many tiles read a panel of 16 bits, an item
    first ``widen``s the taps that it sums at a time, in ``wide_bytes`` at the start of its scratch memory.
    """

    x: Operand
    y: Operand
    residual: Operand
    weights: Operand
    bias: Operand
    offsets: Operand
    has_residual: int
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
    chunk_taps: int
    depth: int
    windows: Windows
    row_taps: int
    filter_rows: int
    plane_rows: PlaneRows
    columns: Columns
    plane_lines: int
    strips: int
    x_plane: int
    y_plane: int
    residual_plane: int
    group_panels: int
    group_channels: int
    x_group_bytes: int
    group_weight_bytes: int
    register_bytes: int
    widen: Widen | None
    wide_bytes: int
    width: int
    tail_vecs: int
    across_bytes: int
    cut: Cut
    sweep: GemmSweep
    tail_sweep: GemmSweep
    minus_inf: float  # with `plus_inf`, bounds of a clamp that does nothing
    plus_inf: float
    end: Epilogue
    weights_image: int
    stored: Cells
    apart: Turned

    @property
    def tile(self) -> str:
        """The register tile as ``rows x vector registers``."""
        return f"{self.cut.rows1}x{self.sweep.vecs if self.across_bytes else self.width}"

    @property
    def beside(self) -> str:
        """What the step makes beside its results, in words; empty for nothing."""
        along = "lanes run along the sum" if self.across_bytes else ""
        inside = "columns beyond the image are left out" if self.columns.tap_entries else ""
        turned = "its results are turned in the store" if self.apart.has_turned else ""
        return "; ".join(filter(None, (along, inside, turned, self.narrow.said, self.stored.said)))

    @property
    def narrow(self) -> Narrow:
        """How the weights lie in memory."""
        return self.widen.narrow if self.widen else self.sweep.narrow

    @property
    def of_parts(self) -> int:
        """That of dot products of bfloat16."""
        return int(self.sweep.dots)


class Depthwise(StepRecord, kernel="depthwise"):
    """A convolution with one filter for each channel, or with groups of a few channels.

    A group takes ``group_inputs`` channels of x and makes ``group_outputs`` of y, no fewer; several groups
    lie in one register. Weights are ``[registers][planes x rows][group_inputs][cols][lanes]``.

    Items are images x ``bands`` of lines x ``blocks`` of ``block_registers`` channel registers; the kernel
    takes the registers in runs of ``run``. ``x_line`` and ``x_col`` are the strides of x between neighbouring
    outputs, ``x_deep``, ``x_row`` and ``x_tap`` those between the planes, rows and taps of a filter. With
    ``has_sums``, the sum of each line of results is written, too, for a layer that averages the image.
    """

    x: Operand
    y: Operand
    weights: Operand
    bias: Operand
    sums: Operand
    has_sums: int
    sums_image: int
    sums_line: int
    x_image: int
    x_line: int
    x_col: int
    x_row: int
    x_tap: int
    y_image: int
    y_line: int
    y_col: int
    lines: int
    band_lines: int
    bands: int
    blocks: int
    block_registers: int
    run: int
    channels: int
    group_inputs: int
    group_outputs: int
    filter_rows: int
    filter_cols: int
    windows: Windows
    plane_lines: int
    x_plane: int
    y_plane: int
    filter_planes: int
    x_deep: int
    cut: Cut
    sweep: DepthwiseSweep
    end: Epilogue
    stored: Cells

    @property
    def tile(self) -> str:
        """The register tile as ``rows x vector registers``."""
        return f"{self.cut.rows1}x1"

    @property
    def beside(self) -> str:
        """What the step makes beside its results, in words; empty for nothing."""
        sums = "sums each line for the average of the image" if self.has_sums else ""
        together = f"groups of {self.group_outputs} channels share a register" if self.sweep.grouped else ""
        return "; ".join(filter(None, (together, sums, self.stored.said)))


class Matrices(Record):
    """Matrices ``[taps, rows, cols]`` that are packed into ``panels`` of columns.

    ``places`` are the byte offsets of the taps. Three axes with strides ``x`` lie around a matrix, the inner
    two of sizes ``n1`` and ``n2``; packed ones are ``matrix_bytes`` apart. Items are matrices x ``blocks`` of
    ``block_panels`` panels.
    """

    source: Operand
    target: Operand
    places: Operand
    x: Three
    n1: int
    n2: int
    x_row: int
    x_col: int
    taps: int
    rows: int
    cols: int
    matrix_bytes: int
    panels: int
    block_panels: int
    blocks: int


class PackPanels(StepRecord, kernel="pack_panels"):
    """Packs matrices as panels ``[cols / nr][taps][rows][nr]``, zeros beyond ``cols``.

    A panel has ``width`` vector registers, the last one ``tail``.
    """

    matrices: Matrices
    width: int
    tail: int


class Unpacked(StepRecord, kernel="unpacked"):
    """Products of few rows with a matrix ``w [terms, columns]`` that is read once, as it lies in memory.

    Two axes of products lie around them, the inner one of ``n1``. Items are products x ``blocks`` of
    ``block_panels`` panels of columns; a panel has ``width`` vector registers, the last one ``tail``. Parts
    of ``part`` terms are summed one after the other, ``near`` terms at a time for all panels of a block.
    ``packed_at`` is the place in scratch memory of a panel of so many terms.
    """

    x: Operand
    w: Operand
    y: Operand
    bias: Operand
    n1: int
    x_of: Two
    w_of: Two
    y_of: Two
    x_row: int
    w_row: int
    w_col: int
    y_row: int
    rows: int
    terms: int
    columns: int
    part: int
    near: int
    width: int
    tail: int
    panels: int
    block_panels: int
    blocks: int
    packed_at: int
    most: int
    sweep: UnpackedSweep
    tail_sweep: UnpackedSweep
    end: Epilogue

    @property
    def tile(self) -> str:
        """The register tile as ``rows x vector registers``."""
        return f"{-(-self.rows // -(-self.rows // self.most))}x{self.width}"
