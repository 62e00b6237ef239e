"""The records of attention, by float32 multiply-adds or on tiles of bfloat16. Strides are in bytes."""

from bslite.kernels.contracts.attention import Mask
from bslite.kernels.contracts.cpu.sweep import GemmSweep
from bslite.kernels.contracts.cpu.tiles import OnTiles, TileSweep
from bslite.kernels.contracts.cpu.update import UpdateSweep
from bslite.kernels.contracts.record import Operand, Record, StepRecord, Three


class Heads(Record):
    """``softmax(q @ k^T * scale + mask) @ v`` for matrices along three axes, the inner two ``n1`` and ``n2``.

    Items are matrices x ``shares`` of ``share_rows`` rows of q; the kernel computes the scores of
    ``tile_rows`` rows and ``block`` keys together. ``scores`` is the place in scratch memory of scores, rows
    ``score_row`` apart; ``largest`` and ``totals`` those of the largest score and of the sum of exponentials
    so far of each row of an item, ``fades`` that of a number for each row of a tile.
    """

    q: Operand
    k: Operand
    v: Operand
    mask: Operand
    noise: Operand
    y: Operand
    q_axes: Three
    k_axes: Three
    v_axes: Three
    mask_axes: Three
    noise_axes: Three
    y_axes: Three
    n1: int
    n2: int
    q_row: int
    k_row: int
    v_row: int
    mask_row: int
    noise_row: int
    y_row: int
    rows: int
    keys: int
    depth: int
    features: int
    shares: int
    share_rows: int
    block: int
    tile_rows: int
    mask_kind: Mask
    dropped: int  # weights are multiplied by noise
    causal: int
    safe: int  # rows without a key become zeros, not NaN
    scale: float
    scores: int
    score_row: int
    largest: int
    totals: int
    fades: int


class Panels(Record):
    """How products of rows are cut: ``key_width`` and ``key_most`` are the vector registers of a panel of
    keys and the rows of its tiles; ``width``, ``panels``, ``tail`` and ``most`` are those of what is made.
    """

    key_width: int
    key_most: int
    key_sweep: GemmSweep
    tail_key_sweep: GemmSweep
    width: int
    panels: int
    tail: int
    most: int
    sweep: GemmSweep
    tail_sweep: GemmSweep


class Attention(StepRecord, kernel="attention"):
    """Attention by multiply-adds. ``k_panels`` and ``v_panels`` are the places in scratch memory of packed
    keys and values.
    """

    of: Heads
    panels_of: Panels
    k_panels: int
    v_panels: int
    minus_inf: float
    plus_inf: float


class RoundedAttention(Attention, kernel="rounded_attention"):
    """Attention by dot products of bfloat16: the terms of scores and of values are cells of two.

    ``k_cells``, ``q_cells`` and ``e_cells`` are the places in scratch memory of rounded keys, queries and
    exponentials; rows of the first two are ``cell_row`` bytes apart, those of the last ``e_row``. ``flag`` is
    raised by numbers without a finite bfloat16, and by scores that are NaN.
    """

    flag: Operand
    k_cells: int
    q_cells: int
    cell_row: int
    e_cells: int
    e_row: int

    @property
    def of_parts(self) -> int:
        """That of dot products of bfloat16."""
        return 1


class AttentionGrad(StepRecord, kernel="attention_grad"):
    """The gradients of attention, whose parts of y follow on one another for each matrix.

    Those by keys and values are sums over all queries: with several ``shares`` of these, ``sums`` holds their
    parts, of all ``matrices`` for the first share, then for the next one. With one it is not used.

    Of a block of ``tile_rows`` queries, ``scores`` and ``slopes`` are the places of all weights and of their
    gradients; products with those go ``block`` by ``block`` of keys. ``width`` and so on are those of
    gradients by q and k, ``wide`` and so on those by v. ``k_panels`` and ``v_panels``: keys and values,
    packed as columns; ``k_rows``: keys, as rows; ``q_rows`` and ``grad_rows``: a block of queries and of
    gradients; ``k_sums`` and ``v_sums``: gradients by k and v, rows of whole registers.
    """

    of: Heads
    grad: Operand
    grad_axes: Three
    grad_row: int
    sums: Operand
    matrices: int
    by_mask: int  # gradients by scores are stored, too
    panels_of: Panels
    update: UpdateSweep
    tail_update: UpdateSweep
    wide: int
    wide_panels: int
    wide_tail: int
    wide_update: UpdateSweep
    tail_wide_update: UpdateSweep
    slopes: int
    k_panels: int
    v_panels: int
    k_rows: int
    q_rows: int
    grad_rows: int
    k_sums: int
    v_sums: int
    table: int
    minus_inf: float
    plus_inf: float


class SplitAttention(OnTiles, kernel="split_attention"):
    """Attention whose operands are split into ``parts`` of bfloat16, as `SplitConv`'s are.

    ``q_parts`` and ``e_parts`` are the places in scratch memory of the parts of q's rows and of their
    exponentials, rows ``q_pixel`` and ``e_pixel`` bytes apart; ``k_tiles`` and ``v_tiles`` those of keys and
    values, packed panel by panel; ``panel`` that of one panel of keys as float32. ``offsets`` says where in a
    row blocks of 32 terms begin. ``flag``: as there; also raised by scores that are NaN.
    """

    of: Heads
    flag: Operand
    offsets: Operand
    parts: int
    q_parts: int
    q_pixel: int
    e_parts: int
    e_pixel: int
    k_tiles: int
    v_tiles: int
    panel: int
    sweep: TileSweep
