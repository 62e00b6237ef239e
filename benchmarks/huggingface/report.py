"""The models as data and as a table."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.huggingface.measure import Result
from benchmarks.output import document, failed, where
from benchmarks.tables import geometric_mean, ms, ratio, share, table


def as_dict(results: Sequence[Result], threads: int, header: dict[str, Any]) -> dict[str, Any]:
    """Everything, ready for JSON."""
    found = [{**asdict(r), "right": r.right, "ratio": r.ratio} for r in results]
    return {**header, "threads": threads, "results": found}


def markdown(results: Sequence[Result], threads: int, header: dict[str, Any]) -> str:
    """A row for each model, the mean, what ran in torch, and what failed."""
    head = ["model", "right", "error", "torch's", "first call, s", "another size, s"]
    head += ["bslite, ms", "torch, ms", "ratio", "in torch"]
    measured = [r for r in results if not r.failures]
    options = header["options"]
    said = f"{threads} thread(s) used, batch {options['batch']}, {options['length']} tokens"
    return document(
        table(head, [_row(r) for r in measured], left=2),
        _mean(measured),
        "`right`: of every result at two sizes, the relative L2 distance from float64 is at most four times "
        "torch's; `error` and `torch's` are those of the result that is farthest off. `in torch`: share of "
        "the flops. Times: medians of the later halves of blocks in random order. `ratio`: torch's time over "
        "bslite's.",
        "\n".join(f"- {r.name}: {why}" for r in measured for why in r.in_torch),
        failed(results, lambda r: str(r.name)),
        where(header, said),
    )


def _row(r: Result) -> list[str]:
    error = max(r.errors, default=(0.0, 0.0))
    row = [r.name, "yes" if r.right else "NO", *(f"{e:.0e}" for e in error)]
    row += ["-" if s is None else f"{s:.2f}" for s in (r.first, r.other)]
    return [*row, ms(r.ours, 2), ms(r.theirs, 2), ratio(r.ratio), share(r.share)]


def _mean(results: Sequence[Result]) -> str:
    ratios = [r.ratio for r in results if r.ratio]
    if not ratios:
        return ""
    mean, least = ratio(geometric_mean(ratios)), ratio(min(ratios))
    return f"Geometric mean of {len(ratios)} ratios {mean}, the least {least}."
