"""Records of steps that move data. Strides are in bytes."""

from typing import ClassVar

from bslite.kernels.contracts.record import Five, Four, Operand, Six, StepRecord, Three, Variant


class Copy(StepRecord, kernel="copy"):
    """``y[i0..i5, :run] = x[i0..i5, :run]`` of 4-byte cells; an item is one (i0, i1).

    ``n``: sizes; ``x``, ``y``: the strides of source and target. ``run`` cells lie side by side in both.
    """

    AXES: ClassVar[int] = 6

    source: Operand
    target: Operand
    n: Six
    x: Six
    y: Six
    run: int


class CopyAxes(StepRecord, kernel="copy_axes"):
    """A copy over more axes than `Copy` has: two inner axes and ``run``, and a table of ``axes`` outer ones.

    ``table`` holds the size of each outer axis, innermost first, and its strides in source and target.
    ``planes`` is the number of indices of the outer axes; an item has ``item_planes`` of them.
    """

    source: Operand
    target: Operand
    table: Operand
    axes: int
    planes: int
    item_planes: int
    n: tuple[int, int]
    x: tuple[int, int]
    y: tuple[int, int]
    run: int


class Transpose(StepRecord, kernel="transpose"):
    """``y[.., r, c, :run] = x[.., c, r, :run]`` by squares of registers: rows lie side by side in x, columns
    in y. ``run`` is 1 or 2: single cells or pairs.

    Three axes lie around rows and columns, the inner two of sizes ``n1`` and ``n2``; an item is one index of
    these and one of ``blocks`` blocks of ``block_cols`` columns.
    """

    source: Operand
    target: Operand
    n1: int
    n2: int
    x: Three
    y: Three
    rows: int
    cols: int
    x_col: int
    y_row: int
    blocks: int
    block_cols: int
    run: int


class Weave(Variant):
    """``planes`` planes to the first cells of pixels of ``cells`` cells, or, ``apart``, from them to planes.

    There are at most a register's lanes less one cells to a pixel.
    """

    planes: int
    cells: int
    apart: bool


class Interleave(StepRecord, kernel="interleave"):
    """Copies between a few planes and pixels whose cells lie side by side: ``y[.., p, c] = x[.., c, p]``, or
    ``y[.., c, p] = x[.., p, c]``.

    Four axes lie around them, of sizes ``n``; an item is an index of the outer two and one of ``blocks``
    blocks of ``block_pixels`` pixels. ``plane``: between planes, of the operand that has them.
    """

    AXES: ClassVar[int] = 4

    source: Operand
    target: Operand
    weave: Weave
    n: Four
    x: Four
    y: Four
    x_pixel: int
    y_pixel: int
    plane: int
    pixels: int
    blocks: int
    block_pixels: int


class Halo(StepRecord, kernel="halo"):
    """Writes zeros around images; an item is one of ``bands`` bands of the lines of one plane.

    ``left``, ``right`` and ``whole`` (a line with both) count floats, ``top`` and ``bottom`` lines.
    ``target`` is the first element inside.
    """

    target: Operand
    y_image: int
    y_plane: int
    y_line: int
    planes: int
    lines: int
    left: int
    right: int
    top: int
    bottom: int
    whole: int
    bands: int


class Fill(StepRecord, kernel="fill"):
    """Writes a run of ``count`` equal cells for each item, the runs ``y_step`` bytes apart.

    ``value``: a float, or an int where the cells are integers.
    """

    target: Operand
    y_step: int
    count: int
    value: float | int


class Trilu(StepRecord, kernel="trilu"):
    """Rows of dense matrices, zeros where ``column - row`` is below (``upper``) or above the
    diagonal.

    An item has ``item_rows`` of the ``rows`` of all matrices.
    """

    x: Operand
    y: Operand
    height: int
    width: int
    upper: bool
    diagonal: int
    rows: int
    item_rows: int


class Fold(StepRecord, kernel="fold"):
    """Sums dense columns ``[N, C, taps, windows]`` where their windows lie in images ``[N, C, D, H, W]``.

    Lines (n, c, d, h) are cut into pieces of ``piece_cols`` columns, of which an item has ``item_pieces``; a
    thread has room for the sums of a piece in float64. ``y``: strides of the images. By axis, ``n`` is the
    image's size, ``w`` the number of windows, ``k`` the size of a window, ``s`` the stride, ``d`` the
    dilation and ``p`` the padding before.
    """

    MOST_COLS: ClassVar[int] = 4096

    source: Operand
    target: Operand
    y: Five
    pieces: int
    item_pieces: int
    piece_cols: int
    channels: int
    n: Three
    w: Three
    k: Three
    s: Three
    d: Three
    p: Three


class FoldLines(StepRecord, kernel="fold_lines"):
    """Sums windows of contiguous taps where they lie in lines of ``size`` elements, as `Fold` does.

    ``lines`` of ``channels`` to an image are cut into pieces of ``piece_cols`` columns, at most
    `Fold.MOST_COLS`, of which an item has ``item_pieces``. Window w begins at element ``w * step - before``.
    """

    x: Operand
    y: Operand
    x_image: int
    x_channel: int
    x_window: int
    y_image: int
    y_channel: int
    lines: int
    channels: int
    item_pieces: int
    piece_cols: int
    size: int
    windows: int
    taps: int
    step: int
    before: int


class Widen(StepRecord, kernel="widen"):
    """``y = x`` of ``count`` bytes side by side, numbers that are ``signed`` or not, as int32 cells.

    An item is one of ``parts`` parts, each of a register of cells at least.
    """

    x: Operand
    y: Operand
    count: int
    parts: int
    signed: int
