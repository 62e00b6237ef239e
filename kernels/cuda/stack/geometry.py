"""The rows and columns of each level of a stack that one thread computes."""

from bslite.kernels.contracts.cuda.stack import Level, Window, levels_of


class Geometry:
    """The levels of ``stages`` for a thread with ``columns`` columns of the result.

    ``counts``: columns of each level. ``inside``: the first and the last of those that are always inside the
    image. ``turn``: rows of the input in one turn of the thread's loop, ``turn`` times the product of all
    windows' row steps. ``rows``: the rows of each level that one turn computes, counted from the turn's
    number times their count.
    """

    def __init__(self, stages: str, columns: int, turn: int) -> None:
        self.columns = columns
        self.levels = levels_of(stages)
        self.last = len(self.levels) - 1
        self.counts = columns_of(self.levels, columns)
        self.inside = inside_of(self.levels, columns)
        steps = 1
        for k in range(1, self.last + 1):
            steps *= self.window(k).row_step
        self.turn = turn * steps
        self.rows = [list(range(self.turn))]
        for k in range(1, self.last + 1):
            w = self.window(k)
            firsts = [a + w.top - w.rows + 1 for a in self.rows[-1]]
            self.rows.append([a // w.row_step for a in firsts if a % w.row_step == 0])

    def window(self, k: int) -> Window:
        """Return the window between levels k - 1 and k."""
        w = self.levels[k].window
        assert w is not None
        return w

    def column(self, k: int, c: int) -> str:
        """Return source for the place of column c of level k, clamped to the image where needed."""
        lo, hi = self.inside[k]
        place = f"col{k} + {c}"
        if c < lo:
            place = f"max({place}, i64(0))"
        return f"min({place}, width{k} - 1)" if c > hi else place


def columns_of(levels: list[Level], columns: int) -> list[int]:
    """Return the columns of each level that ``columns`` of the last one need."""
    counts = [columns]
    for level in reversed(levels[1:]):
        assert level.window is not None
        counts.append((counts[-1] - 1) * level.window.col_step + level.window.cols)
    return counts[::-1]


def inside_of(levels: list[Level], columns: int) -> list[tuple[int, int]]:
    """Return the first and last columns of each level that are inside the image wherever the last level's
    are; columns before or after may be beyond its edge.
    """
    spans = [(0, columns - 1)]
    for level in reversed(levels[1:]):
        w = level.window
        assert w is not None
        first, last = spans[-1]
        spans.append((first * w.col_step + w.left, last * w.col_step + w.cols - 1 - w.right))
    return spans[::-1]
