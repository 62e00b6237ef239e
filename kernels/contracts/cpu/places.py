"""Records of steps that read and write cells at computed places. Operands are dense, strides are in bytes.

An index that is out of range raises ``flag``; an integer that does not fit 32 bits raises ``overflow``.
"""

from bslite.kernels.contracts.record import Operand, Record, StepRecord
from bslite.kernels.contracts.reduction import Reduction


class Lines(Record):
    """Lines along an axis, of ``size`` cells in x and ``count`` in the indices; an item has ``item_lines``.

    ``table`` holds the size of each of the ``axes`` around the lines, innermost first, and its strides in x
    and in the indices. ``x_step`` and ``i_step`` are the strides along a line. For a scatter, x is the
    output.
    """

    table: Operand
    axes: int
    lines: int
    item_lines: int
    size: int
    count: int
    x_step: int
    i_step: int


class Put(Record):
    """How updates change the cells of y; ``floats`` says whether both hold floats."""

    updates: Operand
    overflow: Operand
    reduction: Reduction
    floats: bool


class Gather(StepRecord, kernel="gather"):
    """``y[o, i] = x[o, indices[i]]``; x ``[outer, size, inner]``, y ``[outer, count, inner]``.

    An item is one o and one of ``parts`` parts of the indices.
    """

    x: Operand
    indices: Operand
    y: Operand
    flag: Operand
    size: int
    inner: int
    count: int
    parts: int


class GatherElements(StepRecord, kernel="gather_elements"):
    """``y[k] = x[indices[k]]`` for lines along the axis; y and the indices have the same shape."""

    x: Operand
    indices: Operand
    y: Operand
    flag: Operand
    along: Lines


class ScatterElements(StepRecord, kernel="scatter_elements"):
    """``y[indices[k]] = updates[k]`` for lines along the axis, in order; y already holds the input."""

    y: Operand
    indices: Operand
    flag: Operand
    along: Lines
    put: Put


class Coordinates(Record):
    """Where slices of ``inner`` cells lie: ``indices[count, coordinates]``.

    ``table`` holds, for each coordinate, the size and the stride of its axis.
    """

    table: Operand
    indices: Operand
    coordinates: int
    inner: int
    count: int


class GatherND(StepRecord, kernel="gather_nd"):
    """Gathers slices side by side into y, ``per_batch`` of them from each ``batch_bytes`` of x.

    An item has ``item_count`` of them.
    """

    x: Operand
    y: Operand
    flag: Operand
    at: Coordinates
    per_batch: int
    batch_bytes: int
    item_count: int


class ScatterND(StepRecord, kernel="scatter_nd"):
    """Scatters slices in order; an item is one of ``parts`` parts of each. y already holds the input."""

    y: Operand
    flag: Operand
    at: Coordinates
    parts: int
    put: Put


class TopK(StepRecord, kernel="topk"):
    """Rows ``y [k]`` of indices into rows ``x [length]``, the largest or the smallest element first.

    An item has ``item_rows`` of the ``rows``.
    """

    x: Operand
    y: Operand
    rows: int
    item_rows: int
    length: int
    k: int
    largest: bool
    floats: bool


class OneHot(StepRecord, kernel="one_hot"):
    """``y[o, d, i] = on if d == x[o, i] else off``; x ``[outer, inner]``, y ``[outer, depth, inner]``.

    ``on`` and ``off`` are floats, or ints where the cells are integers. An item has ``item_places`` of the
    ``places`` of x. An index that is out of range raises ``flag`` if ``strict``.
    """

    x: Operand
    y: Operand
    flag: Operand
    places: int
    item_places: int
    depth: int
    inner: int
    on: float | int
    off: float | int
    strict: bool


class SequenceLengths(StepRecord, kernel="sequence_lengths"):
    """``y = x`` for ``count`` lengths, which the single item checks.

    A length outside 1 to ``most`` raises ``range_flag``; with ``in_order``, one that follows a shorter one
    raises ``order_flag``; a longest length below ``steps`` raises ``whole_flag``.
    """

    x: Operand
    y: Operand
    range_flag: Operand
    order_flag: Operand
    whole_flag: Operand
    count: int
    most: int
    steps: int
    in_order: bool
