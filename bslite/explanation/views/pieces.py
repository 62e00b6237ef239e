"""The views of a model in pieces: its table, its trace, its report."""

import json
from html import escape
from typing import Any

from bslite.explanation.data.pieces import PieceRow, PiecesResult
from bslite.explanation.views.page import body, document, need_plotly, table_of, tiles_of
from bslite.explanation.views.text import percent, shortened, table
from bslite.explanation.views.trace import events
from bslite.spec.table import ruled

HEADER = ("piece", "computed by", "what", "calls", "µs", "share", "floor", "why")
WORDS = (1, 2, 7)  # columns of words, to the left; the others are numbers


def pieces_table(e: PiecesResult) -> str:
    """The run, a line per piece, then each explained part."""
    cells = [HEADER, *map(_cells, e.rows)]
    total = sum(r.seconds for r in e.rows)
    floor = f"{e.floor * 1e6:,.0f}" if e.floor else ""
    cells.append(("total", "", "", "", f"{total * 1e6:,.0f}", "100.0%", floor, ""))
    lines = [*_headline(e), "", *ruled(cells, WORDS), *_unexplained(e)]
    for part in e.parts:
        lines += ["", table(part)]
    return "\n".join(lines)


def _headline(e: PiecesResult) -> list[str]:
    takes = " ".join(str(list(s)) for s in e.shapes)
    spent = {how: e.spent(how) for how in dict.fromkeys(r.how for r in e.rows)}
    ways = ", ".join(f"{how} {seconds * 1e3:.2f} ms" for how, seconds in spent.items())
    return [
        f"{e.model}, input {takes}: {e.seconds * 1e3:.2f} ms a run in {len(e.rows)} pieces; medians of "
        f"{e.runs} runs",
        f"{ways}; floor of what the engine computes {e.floor * 1e3:.2f} ms",
    ]


def _unexplained(e: PiecesResult) -> list[str]:
    left = [r for r in e.rows if r.how == "engine" and r.part is None]
    return [f"(pieces of the engine that take too little to be explained below: {len(left)})"] if left else []


def _cells(r: PieceRow, widest: int | None = 60) -> tuple[str, ...]:
    what = "  " * r.depth + r.what
    floor = "" if r.floor is None else f"{r.floor * 1e6:,.0f}"
    return (
        str(r.number), r.how, what if widest is None else shortened(what, widest), str(r.calls),
        f"{r.seconds * 1e6:,.0f}", percent(r.share), floor, r.reason,
    )  # fmt: skip


def pieces_trace(e: PiecesResult) -> str:
    """A track with the pieces of one run; each explained part has tracks of its own, from where it began."""
    made: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": 1, "tid": 0, "args": {"name": f"{e.model}, pieces"}}
    ]
    for r in e.rows:
        args = {"piece": r.number, "nodes": r.what, "computed by": r.how, "why": r.reason}
        made += [
            {
                "name": f"{r.number}: {r.what}", "cat": r.how, "ph": "X", "pid": 1, "tid": 0,
                "ts": start * 1e6, "dur": (stop - start) * 1e6, "args": args,
            }
            for start, stop in r.at
        ]  # fmt: skip
        if r.part is not None:
            made += events(e.parts[r.part], 2 + r.part, r.at[0][0] * 1e6)
    return json.dumps({"traceEvents": made, "displayTimeUnit": "ns"})


def pieces_page(e: PiecesResult) -> str:
    """The whole report: the pieces, then each explained part as in a report of its own."""
    need_plotly()
    from bslite.explanation.views import figures

    spent = {how: e.spent(how) for how in dict.fromkeys(r.how for r in e.rows)}
    tiles = {"a run": f"{e.seconds * 1e3:.2f} ms", "pieces": str(len(e.rows))}
    tiles |= {how: f"{seconds * 1e3:.2f} ms" for how, seconds in spent.items()}
    tiles["floor of what the engine computes"] = f"{e.floor * 1e3:.2f} ms"
    takes = " ".join(str(list(s)) for s in e.shapes)
    rows = [([str(c) for c in _cells(r, None)], r.depth > 0) for r in e.rows]
    plot = figures.time_per_piece(e).to_html(
        full_html=False, include_plotlyjs=False, config={"displayModeBar": False, "responsive": True}
    )
    sections = [
        f"<h1>{escape(e.model)}</h1><p>input {takes}, medians of {e.runs} runs</p>",
        tiles_of(tiles),
        "<section><h2>Time per piece</h2><p>The pieces of a run, without those inside them. The "
        f"tick is the least that the machine allows what the engine computes.</p>{plot}</section>",
        f"<section><h2>Pieces</h2><div class='scroll'>{table_of(HEADER, rows, WORDS)}</div></section>",
        *(body(part) for part in e.parts),
    ]
    return document(f"{e.model}, {takes}", sections)
