"""The comparison as data and as tables."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.output import document, failed, where
from benchmarks.peers.engines import ENGINES
from benchmarks.peers.measure import Result
from benchmarks.peers.memory import CAPTION
from benchmarks.roofline import Roofline
from benchmarks.tables import geometric_mean, megabytes, ms, ratio, share, table


def as_dict(results: Sequence[Result], roofline: Roofline, header: dict[str, Any]) -> dict[str, Any]:
    """Everything, ready for JSON."""
    return {
        **header,
        "roofline": {**asdict(roofline), "bandwidth": roofline.bandwidth},
        "results": [
            {**asdict(r), "best_peer": r.best_peer, "ratio": r.ratio, **_floors(r, roofline)} for r in results
        ],
    }


def markdown(results: Sequence[Result], roofline: Roofline, header: dict[str, Any]) -> str:
    """One table per batch size, then what failed, what was measured and on what."""
    each = [[r for r in results if r.batch == batch] for batch in dict.fromkeys(r.batch for r in results)]
    gflops = ", ".join(f"{name} {rate / 1e9:.0f}" for name, rate in roofline.sgemm.items())
    fma = "" if roofline.fma is None else f"; own microkernel {roofline.fma / 1e9:.0f} GFLOP/s"
    return document(
        *(_table(of_batch, roofline) for of_batch in each),
        *map(_memory, each),
        failed(results, lambda r: f"{r.net}, batch {r.batch}"),
        where(
            header,
            f"{roofline.threads} thread(s) used. SGEMM {gflops} GFLOP/s{fma}. "
            f"Memory: copy {roofline.copy / 1e9:.1f}, read {roofline.read / 1e9:.1f} GB/s",
        ),
    )


def _floors(result: Result, roofline: Roofline) -> dict[str, float | None]:
    """Seconds the network takes at least, by SGEMM's rate and by our own microkernel's, and their shares."""
    ours = result.seconds.get("bslite")
    floors: dict[str, float | None] = {"floor": None, "fma_floor": None}
    if result.flops is not None and result.bytes is not None:
        floors["floor"] = roofline.floor(result.flops, result.bytes)
        floors["fma_floor"] = roofline.fma_floor(result.flops, result.bytes)
    shares = {f"{name}_share": s / ours if s and ours else None for name, s in floors.items()}
    return {**floors, **shares}


def _table(results: Sequence[Result], roofline: Roofline) -> str:
    engines = [e for e in ENGINES if any(e in r.seconds for r in results)]
    with_fma = roofline.fma is not None
    head = ["net", *engines, "best peer", "best / bslite", "floor", "share"]
    head += ["FMA floor", "share"] if with_fma else []
    rows = []
    for r in results:
        row = [r.net, *(ms(r.seconds.get(e)) for e in engines), r.best_peer or "-", ratio(r.ratio)]
        floors = _floors(r, roofline)
        row += [ms(floors["floor"]), share(floors["floor_share"])]
        row += [ms(floors["fma_floor"]), share(floors["fma_floor_share"])] if with_fma else []
        rows.append(row)
    mean = ratio(geometric_mean([r.ratio for r in results]))
    rows.append(["geometric mean", *[""] * len(engines), "", mean])
    title = f"Batch {results[0].batch}, {results[0].threads} thread(s); ms, medians of interleaved rounds"
    note = (
        "`best / bslite` above 1: bslite is faster than the best of the others. `floor`: what arithmetic at"
        " the rate of SGEMM, or weights, input and output at the speed of memory, take at least; `share`: of"
        " bslite's time."
    )
    return f"**{title}**\n\n{table(head, rows)}\n\n{note}"


def _memory(results: Sequence[Result]) -> str:
    """What each engine keeps and its peak; empty where it was not measured."""
    engines = [e for e in ENGINES if any(e in r.memory for r in results)]
    if not engines:
        return ""
    rows = []
    for r in results:
        each = (r.memory.get(e, {}) for e in engines)
        rows.append([r.net, *(f"{megabytes(m.get('kept'))} / {megabytes(m.get('peak'))}" for m in each)])
    title = f"Memory, batch {results[0].batch}, {results[0].threads} thread(s); MB, kept / peak"
    return f"**{title}**\n\n{table(['net', *engines], rows)}\n\nMB: {CAPTION}."
