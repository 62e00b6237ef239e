"""Records of launches that gather and scatter cells. Operands are dense, strides in elements.

An index out of range raises ``flag``; an integer that does not fit 32 bits raises ``overflow``.
"""

from bslite.kernels.contracts.launch import I4, I8, LaunchRecord, LaunchVariant, Threads
from bslite.kernels.contracts.record import Five, Six
from bslite.kernels.contracts.reduction import Reduction


class Gather(LaunchRecord, kernel="gather"):
    """``y[o, i, c] = x[o, indices[i], c]``, ``total`` cells; x ``[o, size, inner]``, ``count`` indices."""

    x: I4
    indices: I4
    y: I4
    flag: I4
    total: I8
    size: I8
    inner: I8
    count: I8


class GatherPairs(Gather, kernel="gather_pairs", pairs=("x", "y")):
    """The fields of `Gather` for pairs of cells: ``total`` and ``inner`` count pairs."""


class GatherElements(LaunchRecord, kernel="gather_elements"):
    """``y[i] = x[place of i + indices[i] * x_step]`` for ``count`` elements, axis 0 innermost.

    ``n``: sizes of all axes but the outermost; ``x``: strides of the source, 0 along the axis of ``size``
    elements that indices pick along.
    """

    source: I4
    indices: I4
    target: I4
    flag: I4
    count: int
    size: int
    x_step: int
    n: Five
    x: Six


class RowsAt(LaunchRecord, kernel="rows_at"):
    """``rows[q]``: the row of a dense tensor that the ``coordinates`` at ``indices[q]`` point to.

    ``table``: the size of each axis, and the number of rows between its neighbours. Each batch of
    ``batch_rows`` rows has ``per_batch`` of the ``count`` points.
    """

    indices: I4
    table: I4
    rows: I4
    flag: I4
    count: int
    coordinates: int
    per_batch: int
    batch_rows: int


class ScatterVariant(Threads):
    """A block's ``across`` lines lie along ``axes`` axes; ``alone``: a thread has a single cell."""

    across: int
    axes: int
    alone: int
    reduction: Reduction
    floats: int


class Scatter(LaunchRecord, kernel="scatter"):
    """``target[indices[k]] = updates[k]``, or reduced with it, for k up to ``count``, in this order, along
    each of ``lines`` lines of ``size`` cells.

    ``share``: cells per thread. ``y_step``, ``i_step``, ``u_step``: strides along a line. ``own``: whether a
    line has indices of its own, placed as its updates are. ``n``: the number of lines along all axes but the
    outermost, axis 0 innermost; ``u``, ``y``: strides of lines in updates and target.
    """

    target: I4
    indices: I4
    updates: I4
    flag: I4
    overflow: I4
    lines: int
    size: int
    count: int
    share: int
    y_step: int
    i_step: int
    u_step: int
    own: int
    n: Five
    u: Six
    y: Six


class ScatterSortedVariant(Threads):
    """The reduction of updates into cells, and the type of both."""

    reduction: Reduction
    floats: int


class ScatterSorted(LaunchRecord, kernel="scatter_sorted"):
    """A `Scatter` of ``count`` updates into rows of ``inner`` cells: ``sorted[q, 2]`` are the rows in order,
    each with the number of its update; ``total`` counts the cells of all updates.
    """

    y: I4
    sorted: I4
    updates: I4
    overflow: I4
    total: I8
    count: int
    inner: int


class SequenceLengthsVariant(LaunchVariant):
    """``in_order``: no length may follow a shorter one."""

    in_order: int


class SequenceLengths(LaunchRecord, kernel="sequence_lengths"):
    """``y = x`` of ``count`` lengths, checked by one thread.

    ``range_flag`` is raised by a length outside 1 to ``most``, ``order_flag`` by one that follows a shorter
    one, ``whole_flag`` if the longest is below ``steps``.
    """

    x: I4
    y: I4
    range_flag: I4
    order_flag: I4
    whole_flag: I4
    count: int
    most: int
    steps: int
