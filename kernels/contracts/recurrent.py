"""Cells of recurrent layers, as planners and kernels number them."""

from enum import IntEnum


class Cell(IntEnum):
    """The work of one pass over the hidden units in a time step.

    PROJECTED is an LSTM's first pass and PROJECTION the second, which makes h of the first pass's results.
    BEFORE computes the gates of a GRU whose reset gate comes before the product; NEW computes the rest.
    """

    LSTM = 0
    GRU = 1
    TANH = 2
    RELU = 3
    PROJECTED = 4
    PROJECTION = 5
    BEFORE = 6
    NEW = 7

    @property
    def sums(self) -> int:
        """The products with h of one hidden unit in this pass."""
        return SUMS[self]

    @property
    def second(self) -> "Cell | None":
        """The pass that follows in the same time step, if there is one."""
        return SECOND.get(self)


SUMS = {
    Cell.LSTM: 4, Cell.GRU: 3, Cell.TANH: 1, Cell.RELU: 1, Cell.PROJECTED: 4, Cell.PROJECTION: 1,
    Cell.BEFORE: 2, Cell.NEW: 1,
}  # fmt: skip
SECOND = {Cell.PROJECTED: Cell.PROJECTION, Cell.BEFORE: Cell.NEW}


def cell_of(op: str, activation: str, projected: bool, reset_after: bool) -> Cell:
    """The first pass of a layer: ``op`` is "lstm", "gru" or "rnn"; ``activation`` is an RNN's."""
    if op == "lstm":
        return Cell.PROJECTED if projected else Cell.LSTM
    if op == "gru":
        return Cell.GRU if reset_after else Cell.BEFORE
    return Cell.RELU if activation == "relu" else Cell.TANH
