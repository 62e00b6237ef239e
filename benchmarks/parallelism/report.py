"""The comparison as data and as tables."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.output import document, failed, where
from benchmarks.parallelism.measure import RULES, Checked, Result
from benchmarks.tables import geometric_mean, ms, ratio, table

WHO = ("bslite", "price alone", *RULES)


def as_dict(results: Sequence[Result], checks: Sequence[Checked], header: dict[str, Any]) -> dict[str, Any]:
    """Everything, ready for JSON."""
    return {**header, "results": [asdict(r) for r in results], "checked": [asdict(c) for c in checks]}


def checked(data: dict[str, Any]) -> Checked:
    """A validation from JSON."""
    return Checked(**data)


def setting(c: Checked) -> str:
    """``batch 4, 2 x 1``."""
    return f"batch {c.batch}, {c.streams} x {c.threads}"


def markdown(results: Sequence[Result], checks: Sequence[Checked], header: dict[str, Any]) -> str:
    """A table for each kind, target and number of cores, of costs over the best setting's; the validation."""
    whole = [r for r in results if not r.failures]
    groups = list(dict.fromkeys((r.kind, r.target, r.cores) for r in whole))
    return document(
        *(_table([r for r in whole if (r.kind, r.target, r.cores) == group]) for group in groups),
        "Figures are the cost of what each chooses (seconds of a request, or of an image) over that of the "
        "best setting of an exhaustive search, so 1.00 is best; means are geometric. Rules name no batch: "
        "each has the best one for its streams and threads. `price alone` is the tuner without measuring "
        "its few best. Settings are batch x streams x threads.",
        _validation(checks),
        failed(results, lambda r: f"{r.net}, {r.cores} cores"),
        where(header),
    )


def _table(results: Sequence[Result]) -> str:
    first = results[0]
    head = ["net", "width", "best", "its ms", "images/s", "chosen", *WHO]
    rows = []
    for r in results:
        seconds, rate = r.settings[r.best]
        over = [ratio(r.over_best(who)) for who in WHO]
        rows.append([r.net, ratio(r.width), r.best, ms(seconds, 2), f"{rate:.1f}", r.chosen["bslite"], *over])
    means = [ratio(geometric_mean([r.over_best(who) for r in results])) for who in WHO]
    rows.append(["geometric mean", "", "", "", "", "", *means])
    return f"**{first.kind}, {first.cores} cores, {first.target}**\n\n{table(head, rows)}"


def _validation(checks: Sequence[Checked]) -> str:
    if not checks:
        return ""
    head = ["net", "setting", "measured images/s", "simulated", "error", "priced"]
    rows = [
        [
            c.net,
            setting(c),
            f"{c.measured[1]:.1f}",
            f"{c.simulated[1]:.1f}",
            f"{100 * c.error:+.1f} %",
            f"{c.priced[1]:.1f}",
        ]
        for c in checks
    ]
    worst = max(abs(c.error) for c in checks)
    mean = sum(abs(c.error) for c in checks) / len(checks)
    return (
        f"The simulator, from one-thread times, and what was measured: off by {100 * mean:.1f} % in the "
        f"mean, {100 * worst:.1f} % at most.\n\n{table(head, rows, 2)}"
    )
