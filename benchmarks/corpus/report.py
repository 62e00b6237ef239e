"""The corpus as data and as a table."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.corpus.measure import OURS, THEIRS, Result
from benchmarks.output import document, failed, where
from benchmarks.tables import geometric_mean, ms, ratio, table


def as_dict(results: Sequence[Result], threads: int, header: dict[str, Any]) -> dict[str, Any]:
    """Everything, ready for JSON."""
    return {**header, "threads": threads, "results": [{**asdict(r), "ratio": r.ratio} for r in results]}


def markdown(results: Sequence[Result], threads: int, header: dict[str, Any]) -> str:
    """A row for each file and size, the counts, and what failed."""
    head = ["file", "inputs", "loads", "right", "judge", "error", "onnxruntime's"]
    head += ["first use, ms", "onnxruntime's", "bslite, ms", "onnxruntime, ms", "ratio"]
    return document(
        table(head, [_row(r) for r in results if THEIRS not in r.failures], left=2),
        _counts(results),
        "`loads`: as it is, with no example of its sizes. `right`, by the `judge` float64: bslite's error "
        "(relative L2) is at most four times onnxruntime's. `definition`: the same for a model that rounds "
        "by scales it computes, where onnxruntime's sums of bytes saturate as they are timed: its error is "
        "that of sums that do not, and four times the error of the reference in float32 is allowed, too. "
        "`onnxruntime`: no float64 answer judges, and `error` is the distance between the two. "
        "`first use`: loading and the first "
        "answer; in a file's second row the first answer at another batch and size. Times: medians of the "
        "later halves of blocks in random order. `ratio`: onnxruntime's time over bslite's.",
        failed(results, lambda r: f"{r.file} ({r.inputs})" if r.inputs else r.file),
        where(header, f"{threads} thread(s) used"),
    )


def _row(r: Result) -> list[str]:
    first = r.first or {}
    row = [r.file, r.inputs, _word(r.loads), _word(r.right), r.judge or "-", _error(r.error), _error(r.peer)]
    row += [ms(first.get(OURS), 0), ms(first.get(THEIRS), 0)]
    return [*row, ms(r.seconds.get(OURS), 2), ms(r.seconds.get(THEIRS), 2), ratio(r.ratio)]


def _counts(results: Sequence[Result]) -> str:
    """How many files load, how many are right, and the mean ratio over files (over sizes, of one file)."""
    by_file: dict[str, list[Result]] = {}
    for r in results:
        if THEIRS not in r.failures:
            by_file.setdefault(r.file, []).append(r)
    loads, right = (
        sum(all(getattr(r, what) for r in each) for each in by_file.values()) for what in ("loads", "right")
    )
    ratios = [geometric_mean([r.ratio for r in each]) for each in by_file.values()]
    said = f"Of {len(by_file)} files that onnxruntime runs, {loads} load and {right} are right at every size."
    if any(ratios):
        timed = [x for x in ratios if x]
        said += (
            f" Geometric mean of the ratios {ratio(geometric_mean(timed))}, the least {ratio(min(timed))}."
        )
    return said


def _error(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}"


def _word(value: bool) -> str:
    return "yes" if value else "NO"
