"""Depth-first against layerwise as data and as tables."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.depth_first.measure import MODES, Result
from benchmarks.depth_first.memory import CAPTION
from benchmarks.output import document, failed, where
from benchmarks.tables import geometric_mean, megabytes, ms, ratio, table

HEAD = (
    "net",
    "batch",
    *(f"{mode}, ms" for mode in MODES),
    "layerwise / depth-first",
    *(f"planned MB, {mode}" for mode in MODES),
    *(f"measured MB, {mode}" for mode in MODES),
)


def as_dict(results: Sequence[Result], limits: None, header: dict[str, Any]) -> dict[str, Any]:
    """Everything, ready for JSON."""
    return {**header, "results": [{**asdict(r), "ratio": r.ratio} for r in results]}


def markdown(results: Sequence[Result], limits: None, header: dict[str, Any]) -> str:
    """One table for each number of threads, what failed, what was measured and on what."""
    return document(
        *(_table([r for r in results if r.threads == t]) for t in dict.fromkeys(r.threads for r in results)),
        "The same kernels, the same bits. Times are medians of interleaved rounds, the ratio is the median "
        "of each round's, its means are geometric, over the nets of a batch. `planned`: what the plan keeps "
        f"between layers, arena and scratch of all threads. `measured`: {CAPTION}.",
        failed(results, lambda r: f"{r.net}, batch {r.batch}, {r.threads} thread(s)"),
        where(header),
    )


def _table(results: Sequence[Result]) -> str:
    rows = []
    for r in results:
        row = [r.net, str(r.batch), *(ms(r.seconds.get(mode), 2) for mode in MODES), ratio(r.ratio)]
        memory = [each.get(mode) for each in (r.planned, r.measured) for mode in MODES]
        rows.append(row + [megabytes(bytes_) for bytes_ in memory])
    for batch in sorted({r.batch for r in results}):
        mean = geometric_mean([r.ratio for r in results if r.batch == batch])
        rows.append(["geometric mean", str(batch), "", "", ratio(mean)])
    return f"**{results[0].threads} thread(s)**\n\n{table(HEAD, rows)}"
