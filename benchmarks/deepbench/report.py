"""The comparison as data and as tables."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from benchmarks.deepbench.engines import ENGINES
from benchmarks.deepbench.measure import DIRECTIONS, Found
from benchmarks.deepbench.sync import Sync
from benchmarks.output import document, failed, where
from benchmarks.tables import geometric_mean, megabytes, ms, ratio, share, table

EVEN, FULL = 0.97, 0.9  # what no point may be under, and the part of the streaming rate aimed at
NOTE = """\
ms: medians of interleaved rounds; `best / bslite`: median of each round's ratio, above 1 bslite is faster.
`W`: recurrent weights; those of the inputs are as many. `stream`: the rate at which all threads, each its
part, read as many bytes over and over with vector loads, always forwards / every second pass backwards;
measured in turns with the engines. With a single step, as many as both weights together. `share`: of bslite's
time that W at this rate once for each step, and the products with all inputs at the rate of bslite's
microkernel (or their weights once at the streaming rate, whichever takes longer), would take. `steps alone`:
GB/s of W in the time steps of traced runs, without the products with the inputs (of a single step: with
them, of both weights), and the same two shares of it. `FMA`: share of the microkernel's rate out of L1."""


class Limits(NamedTuple):
    """Flop/s of bslite's microkernel, and what a hand-over between two threads costs, if there are two."""

    fma: float
    sync: Sync | None


def as_dict(results: Sequence[Found], limits: Limits, header: dict[str, Any]) -> dict[str, Any]:
    """Everything, ready for JSON."""
    fma, sync = limits
    return {
        **header,
        "fma": fma,
        "sync": None if sync is None else {**asdict(sync), "cost": sync.cost},
        "summary": summary(results, fma),
        "results": [
            {
                **asdict(r), "best_peer": r.best_peer, "ratio": r.ratio, "rate": r.rate,
                "floors": {d: r.floor(fma, d) for d in DIRECTIONS},
                "shares": {d: r.share(fma, d) for d in DIRECTIONS},
                "recurrent_shares": {d: r.recurrent_share(d) for d in DIRECTIONS},
                "fma_share": r.fma_share(fma),
            }
            for r in results
        ],
    }  # fmt: skip


def summary(results: Sequence[Found], fma: float) -> dict[str, Any]:
    """Means of the ratio, over points and over the list's entries, and the points that fall short."""
    timed = [r for r in results if r.ratio is not None]
    of_entries = [r.ratio for r in timed for _ in r.lengths]
    low = min(timed, key=lambda r: r.ratio or math.inf) if timed else None
    return {
        "mean": geometric_mean([r.ratio for r in timed]),
        "mean_of_entries": geometric_mean(of_entries),
        "worst": None if low is None else {"point": low.net, "batch": low.batch, "ratio": low.ratio},
        "under_even": [f"{r.net}, batch {r.batch}" for r in timed if (r.ratio or 0) < EVEN],
        "under_full": [r.net for r in timed if r.batch == 1 and (r.share(fma, "forwards") or 0) < FULL],
    }


def markdown(results: Sequence[Found], limits: Limits, header: dict[str, Any]) -> str:
    """One table for each batch size, the summary, what failed, what was measured and on what."""
    fma, sync = limits
    meeting = sync and (
        f"Synchronisation: two threads wait for each other in **{1e6 * sync.meeting:.2f} µs**, nothing "
        f"else to do. A plain RNN of {sync.hidden} units takes {1e6 * sync.one:.2f} µs a step on one "
        f"thread, {1e6 * sync.two:.2f} on {sync.threads}: **{1e6 * sync.cost:.2f} µs** beyond half of it."
    )
    return document(
        *(_table([r for r in results if r.batch == b], fma) for b in sorted({r.batch for r in results})),
        _summary(results, fma),
        NOTE,
        meeting or "",
        failed(results, lambda r: f"{r.net}, batch {r.batch}"),
        where(header, f"{results[0].threads} thread(s) used. Own microkernel {fma / 1e9:.0f} GFLOP/s"),
    )


def _table(results: Sequence[Found], fma: float) -> str:
    engines = [e for e in ENGINES if any(e in r.seconds for r in results)]
    head = ["layer", "steps", "W, MB", *engines, "best peer", "best / bslite"]
    head += ["stream, GB/s", "share", "steps alone, GB/s", "share", "FMA"]
    rows = []
    for r in results:
        row = [r.net, _steps(r), megabytes(r.weight_bytes), *(ms(r.seconds.get(e), 2) for e in engines)]
        row += [r.best_peer or "-", ratio(r.ratio)]
        row += [_pair(_gigabytes(r.stream.get(d)) for d in DIRECTIONS)]
        row += [_pair(share(r.share(fma, d)) for d in DIRECTIONS), _gigabytes(r.rate)]
        row += [_pair(share(r.recurrent_share(d)) for d in DIRECTIONS), share(r.fma_share(fma))]
        rows.append(row)
    mean = ratio(geometric_mean([r.ratio for r in results]))
    rows.append(["geometric mean", "", "", *[""] * len(engines), "", mean])
    title = f"Batch {results[0].batch}, {results[0].threads} thread(s); ms"
    return f"**{title}**\n\n{table(head, rows, left=2)}"


def _steps(r: Found) -> str:
    """The steps run, and those of the list where they are more."""
    if tuple(r.lengths) == (r.steps,):
        return str(r.steps)
    return f"{r.steps}, cut from {', '.join(map(str, sorted(r.lengths)))}"


def _summary(results: Sequence[Found], fma: float) -> str:
    """The lines that say whether the aims are reached."""
    found = summary(results, fma)
    if found["worst"] is None:
        return ""
    worst = found["worst"]
    lines = [
        f"Geometric mean of best / bslite: **{ratio(found['mean'])}** over the points measured, "
        f"{ratio(found['mean_of_entries'])} over the list's entries they stand for. "
        f"Worst: {ratio(worst['ratio'])} ({worst['point']}, batch {worst['batch']}).",
        f"Under {EVEN}: {'; '.join(found['under_even']) or 'none'}.",
        f"Batch 1, under {share(FULL)} of the streaming rate (forwards): "
        f"{', '.join(found['under_full']) or 'none'}.",
    ]
    return "\n".join(f"- {line}" for line in lines)


def _gigabytes(rate: float | None) -> str:
    return "-" if rate is None else f"{rate / 1e9:.1f}"


def _pair(parts: Any) -> str:
    return " / ".join(parts)
