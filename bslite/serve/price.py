"""What a batch costs, and what to do about it: how many rows to run at once, and whether to wait for more."""

from collections.abc import Mapping
from dataclasses import dataclass

GAIN = 0.97  # of the time per row: a larger batch that saves less than this is not worth its latency


@dataclass(frozen=True)
class Price:
    """Seconds of a run by its number of rows, as measured; at least for one row.

    A model whose rows are not computed together has the price of one row alone.
    """

    seconds: Mapping[int, float]

    def of(self, rows: int) -> float:
        """Seconds for ``rows``, between and beyond what was measured by straight lines."""
        sizes = sorted(self.seconds)
        below = max((n for n in sizes if n <= rows), default=sizes[0])
        above = min((n for n in sizes if n > rows), default=None)
        if above is None:
            return self.seconds[below] * rows / below
        share = (rows - below) / (above - below)
        return self.seconds[below] + share * (self.seconds[above] - self.seconds[below])

    def rows(self, waiting: int) -> int:
        """How many of the rows that wait to run at once: the fewest that take about the least time each."""
        best = 1
        for size in sorted(self.seconds):
            if size <= waiting and self.seconds[size] / size < GAIN * self.seconds[best] / best:
                best = size
        return best

    @property
    def most(self) -> int:
        """The most rows that are ever worth running at once."""
        return self.rows(max(self.seconds))

    def patience(self, rows: int) -> float:
        """The longest gap until the next request for which ``rows`` at an idle engine gain by waiting, in
        seconds.

        With a gap d and the time t(n) of n rows: run now, and the rows are done at t(n), the next one, which
        waits for them, at t(n) + t(1). Wait, and all of them are done at d + t(n + 1). The sum of the times
        from arrival to answer is smaller with waiting if d < t(1) / (n + 1) - (t(n + 1) - t(n)). Zero or
        less: never wait.
        """
        if rows >= self.most:
            return 0.0
        return self.of(1) / (rows + 1) - (self.of(rows + 1) - self.of(rows))
