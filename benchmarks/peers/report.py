"""The comparison as data and as tables."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.output import document, failed, where
from benchmarks.peers.columns import AGAINST, COLUMNS, DEFAULT, WORDS, column
from benchmarks.peers.measure import Result
from benchmarks.peers.memory import CAPTION
from benchmarks.peers.notes import notes
from benchmarks.roofline import Roofline
from benchmarks.tables import geometric_mean, megabytes, ms, ratio, share, table


def as_dict(results: Sequence[Result], roofline: Roofline, header: dict[str, Any]) -> dict[str, Any]:
    """Everything, ready for JSON."""
    words, each = _words(header), _batches(results)
    return {
        **header,
        "roofline": {**asdict(roofline), "bandwidth": roofline.bandwidth},
        "results": [
            {
                **asdict(r),
                "best_peer": r.best_peer,
                "ratio": r.ratio,
                **_floors(r, roofline),
                "precisions": {w: {"best_peer": r.best_against(w), "ratio": r.ratio_of(w)} for w in words},
            }
            for r in results
        ],
        "geometric_means": {str(of[0].batch): _means(of, words) for of in each},
    }


def markdown(results: Sequence[Result], roofline: Roofline, header: dict[str, Any]) -> str:
    """For each batch size a table for float32's peers and one for bfloat16's, as far as they were measured;
    then what failed, what was measured and on what.
    """
    words, each = _words(header), _batches(results)
    gflops = ", ".join(f"{name} {rate / 1e9:.0f}" for name, rate in roofline.sgemm.items())
    fma = "" if roofline.fma is None else f"; own microkernel {roofline.fma / 1e9:.0f} GFLOP/s"
    return document(
        *(part for of_batch in each for part in _of_batch(of_batch, words, roofline)),
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


def _batches(results: Sequence[Result]) -> list[list[Result]]:
    return [[r for r in results if r.batch == batch] for batch in dict.fromkeys(r.batch for r in results)]


def _words(header: dict[str, Any]) -> list[str]:
    """The precisions asked for."""
    return [word for word in WORDS if word in header["options"]["precision"]]


def _means(results: Sequence[Result], words: Sequence[str]) -> dict[str, float | None]:
    """The geometric mean of the ratios, by precision."""
    return {word: geometric_mean([r.ratio_of(word) for r in results]) for word in words}


def _of_batch(results: Sequence[Result], words: Sequence[str], roofline: Roofline) -> list[str]:
    """The tables of one batch size, the geometric means, and what is to be known of them."""
    kinds = list(dict.fromkeys(AGAINST[word] for word in words))
    tables = [
        _table(results, kind, [word for word in words if AGAINST[word] == kind], roofline) for kind in kinds
    ]
    means = ", ".join(f"{word} {ratio(mean)}" for word, mean in _means(results, words).items())
    said = f"Geometric means of `best / bslite`: {means}." if len(words) > 1 else ""
    return [*tables, said, notes(results, words)]


def _table(results: Sequence[Result], kind: str, words: Sequence[str], roofline: Roofline) -> str:
    """bslite in float32 and in ``words``, and the peers of precision ``kind`` that these are held against."""
    shown = [
        name
        for name, e in COLUMNS.items()
        if (e.precision in (*words, DEFAULT) if e.ours else e.precision == kind)
    ]
    engines = [name for name in shown if any(name in r.seconds for r in results)]
    with_floors = kind == DEFAULT
    with_fma = with_floors and roofline.fma is not None
    head = ["net", *engines, "best peer", *(f"best / {column('bslite', word)}" for word in words)]
    head += ["floor", "share"] if with_floors else []
    head += ["FMA floor", "share"] if with_fma else []
    rows = []
    for r in results:
        row = [r.net, *(_cell(r, e) for e in engines), r.best_against(words[0]) or "-"]
        row += [ratio(r.ratio_of(word)) for word in words]
        floors = _floors(r, roofline)
        row += [ms(floors["floor"]), share(floors["floor_share"])] if with_floors else []
        row += [ms(floors["fma_floor"]), share(floors["fma_floor_share"])] if with_fma else []
        rows.append(row)
    means = _means(results, words)
    rows.append(["geometric mean", *[""] * len(engines), "", *(ratio(means[word]) for word in words)])
    what = "" if kind == DEFAULT else f" in {kind}"
    title = (
        f"Batch {results[0].batch}{what}, {results[0].threads} thread(s); ms / error, "
        "medians of blocks in random order"
    )
    return f"**{title}**\n\n{table(head, rows)}"


def _cell(result: Result, engine: str) -> str:
    """Milliseconds and the error."""
    if engine not in result.seconds:
        return "-"
    error = result.reference_errors.get(engine)
    return f"{ms(result.seconds[engine])} / {'-' if error is None else f'{error:.1e}'}"


def _memory(results: Sequence[Result]) -> str:
    """What each engine keeps and its peak; empty where it was not measured."""
    engines = [e for e in COLUMNS if any(e in r.memory for r in results)]
    if not engines:
        return ""
    rows = []
    for r in results:
        each = (r.memory.get(e, {}) for e in engines)
        rows.append([r.net, *(f"{megabytes(m.get('kept'))} / {megabytes(m.get('peak'))}" for m in each)])
    title = f"Memory, batch {results[0].batch}, {results[0].threads} thread(s); MB, kept / peak"
    return f"**{title}**\n\n{table(['net', *engines], rows)}\n\nMB: {CAPTION}."
