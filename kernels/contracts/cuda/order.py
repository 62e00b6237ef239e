"""Records of launches that sort elements of rows, and of one-hot encoding."""

from bslite.kernels.contracts.launch import I4, I8, LaunchRecord, Threads


class OrderVariant(Threads):
    """The threads of a block; whether the largest elements come first, and whether they are floats."""

    largest: int
    floats: int


class TopKShort(LaunchRecord, kernel="topk_short"):
    """Dense rows ``y [k]`` of indices into rows ``x [length]``; a row fits a block's threads."""

    x: I4
    y: I4
    rows: int
    length: int
    k: int


class TilesVariant(OrderVariant):
    """A block sorts ``tile`` elements; ``whole``: they are a whole row, and the result is indices."""

    tile: int
    whole: int


class TopKTiles(LaunchRecord, kernel="topk_tiles"):
    """The first ``kept`` elements of each of the ``tiles`` of each row, in order: indices, or cells of upper
    half and index, ``y[row, tile, kept, 2]``.
    """

    x: I4
    y: I4
    length: int
    tiles: int
    kept: int


class MergeVariant(Threads):
    """``whole``: one run is left, and the result is indices."""

    whole: int


class TopKMerge(LaunchRecord, kernel="topk_merge"):
    """The first ``kept`` elements of every ``fan`` of the ``runs`` of each row: ``x[row, runs, length, 2]``
    to ``y[row, groups, kept, 2]``; ``total`` elements of ``fan * groups`` runs of all rows.
    """

    x: I4
    y: I4
    total: I8
    runs: int
    fan: int
    groups: int
    length: int
    kept: int


class OneHotVariant(Threads):
    """``strict``: an index that is negative or too large is flagged."""

    strict: int


class OneHot(LaunchRecord, kernel="one_hot"):
    """``y[o, d, i] = values[1] if d == x[o, i] else values[0]``; x ``[outer, inner]``, y ``[outer, depth,
    inner]``, ``total`` cells.
    """

    x: I4
    y: I4
    values: I4
    flag: I4
    total: int
    depth: int
    inner: int
