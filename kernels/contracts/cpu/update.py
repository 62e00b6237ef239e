"""Records of steps that sum products over pixels: gradients of filters. Strides are in bytes."""

from bslite.kernels.contracts.record import Operand, Record, StepRecord, Variant


class UpdateSweep(Variant):
    """Tiles of at most ``most`` rows by ``vecs`` vector registers, sums over pixels."""

    vecs: int
    most: int


class DepthwiseUpdateSweep(Variant):
    """Sums over pixels of one register of channels, for the ``taps`` of a filter row."""

    taps: int


class Along(Record):
    """Where windows lie along planes, rows and columns of x: the first tap of window i at
    ``start + i * step`` of ``size``, neighbouring taps ``dilation`` apart. Taps outside meet zeros; with a
    ``col_step`` of 0 none is beside x.
    """

    plane_start: int
    plane_step: int
    plane_dilation: int
    plane_size: int
    row_start: int
    row_step: int
    row_dilation: int
    row_size: int
    col_start: int
    col_step: int
    col_dilation: int
    col_size: int


class Segments(Record):
    """Windows as segments of ``segment`` neighbouring ones, the last of a line shorter.

    ``images`` x ``planes`` x ``lines`` of ``pixels`` windows, each line cut into ``cuts`` segments. Every
    ``share`` of so many segments, an image's or all, is ``each`` parts of ``part`` segments, the last one
    shorter; a part is summed ``chunk`` segments at a time. There are ``parts``.
    """

    images: int
    planes: int
    lines: int
    pixels: int
    cuts: int
    segment: int
    chunk: int
    share: int
    each: int
    part: int
    parts: int
    x_image: int
    x_plane: int
    x_line: int
    x_col: int
    g_image: int
    g_plane: int
    g_line: int
    g_col: int


class Filter(Record):
    """The taps of a filter: its size, and how far apart they are in x."""

    deep: int
    rows: int
    cols: int
    x_deep: int
    x_row: int
    x_tap: int


class WeightUpdate(StepRecord, kernel="weight_update"):
    """Partial gradients of a filter, ``y [parts][groups][taps][depth][padded]``: sums of x times g.

    Items are parts x groups x ``row_blocks`` of ``block_rows`` of the ``depth`` contiguous elements of x
    under a tap x ``blocks`` of ``block_panels`` panels of ``width`` registers of g's ``columns``, the last
    one ``tail`` registers wide. Rows are cut into tiles of at most ``most``.

    A thread's scratch memory holds a chunk's panels of g, ``panel_bytes`` each; then, from ``tiles_at`` bytes
    on, tiles of x, ``tile_bytes`` each, with ``lane_bytes`` a pixel; then, from ``table_at`` on, three cells
    for each segment. With ``tile_bytes`` 0, x is not packed, and zeros lie beside it in memory.
    """

    x: Operand
    g: Operand
    y: Operand
    over: Segments
    taps: Filter
    inside: Along
    groups: int
    x_group: int
    g_group: int
    depth: int
    block_rows: int
    row_blocks: int
    most: int
    lane_bytes: int
    columns: int
    padded: int
    width: int
    tail: int
    panels: int
    block_panels: int
    blocks: int
    panel_bytes: int
    tiles_at: int
    tile_bytes: int
    table_at: int
    sweep: UpdateSweep
    tail_sweep: UpdateSweep

    @property
    def tile(self) -> str:
        """The register tile as ``rows x vector registers``."""
        return f"{min(self.most, self.depth)}x{self.width}"


class DepthwiseUpdate(StepRecord, kernel="depthwise_update"):
    """Partial gradients of filters of one channel, ``y [parts][taps][padded]``.

    Items are parts x ``blocks`` of ``block_registers`` registers of the ``channels``. Taps beside one another
    are summed ``together``, the last of a filter row by ``tail_sweep``. Scratch memory holds three cells for
    each segment of a chunk.
    """

    x: Operand
    g: Operand
    y: Operand
    over: Segments
    taps: Filter
    inside: Along
    channels: int
    padded: int
    block_registers: int
    blocks: int
    together: int
    sweep: DepthwiseUpdateSweep
    tail_sweep: DepthwiseUpdateSweep
