"""`PiecesExplanation`: where the time of a model goes that takes several ModelSpecs to compute."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bslite.errors import writing
from bslite.explanation.cpu import Explanation
from bslite.explanation.data.pieces import LEAST_RUNS, PiecesResult, rows_of, watched_runs
from bslite.explanation.views.pieces import pieces_page, pieces_table, pieces_trace
from bslite.spec.open import OpenModel

MOST_EXPLAINED = 12  # pieces, the longest ones
LEAST_SHARE = 0.01  # of the run, of a piece that is explained layer by layer


class PiecesExplanation(PiecesResult):
    """Where the time of one model at one size goes, piece by piece. ``str()`` is a table.

    ``rows`` are the pieces in the order in which they began; see `PieceRow`. ``parts`` explain the longest of
    those that the engine computes, layer by layer, each an `Explanation`, for the inputs of its first call.
    ``seconds`` is the time of a run. Times are in seconds.
    """

    def __str__(self) -> str:
        return pieces_table(self)

    def save_trace(self, path: Any) -> None:
        """Write one run of the pieces, and one of each explained part, as a trace for Perfetto.

        Raises FileError if the file cannot be written.
        """
        with writing(path):
            Path(path).write_text(pieces_trace(self), encoding="utf-8")

    def save_html(self, path: Any) -> None:
        """Write a report with plots, one file that needs nothing else.

        Needs plotly (``bslite[report]``): UnsupportedError without it. Raises FileError if the file cannot be
        written.
        """
        with writing(path):
            Path(path).write_text(pieces_page(self), encoding="utf-8")


def explain_pieces(
    model: OpenModel,
    given: Sequence[Any],
    threads: int | None,
    runs: int,
    look: Callable[[Any, Any], Explanation],
) -> PiecesExplanation:
    """Explain a model that is cut; ``look`` explains one spec for its inputs."""
    ran, seconds = watched_runs(model, given, threads, runs)
    total = sum(r.seconds for r in ran) or 1.0
    worth = [i for i, r in enumerate(ran) if r.spec is not None and r.seconds >= LEAST_SHARE * total]
    chosen = sorted(sorted(worth, key=lambda i: -ran[i].seconds)[:MOST_EXPLAINED])
    found = {i: look(ran[i].spec, ran[i].inputs) for i in chosen}
    parts = [
        Explanation(f"{model.name}, piece {i + 1}", e.shapes, e.rows, e.profile, e.limits, e.memory)
        for i, e in found.items()
    ]
    floors = [found[i].floor if i in found else None for i in range(len(ran))]
    places = {i: n for n, i in enumerate(chosen)}
    shapes = tuple(tuple(getattr(x, "shape", ())) for x in given)
    rows = rows_of([replace(r, inputs=[]) for r in ran], floors, places.get)
    return PiecesExplanation(model.name, shapes, rows, seconds, max(runs, LEAST_RUNS), tuple(parts))
