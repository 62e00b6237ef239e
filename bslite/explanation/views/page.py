"""The report: one HTML file with plots and the table, which fetches nothing."""

from collections.abc import Container, Mapping, Sequence
from html import escape
from typing import Any

from bslite.errors import UnsupportedError
from bslite.explanation.data.result import Result
from bslite.explanation.views.text import HEADER, WORDS, cells_of

STYLE = """
:root { color-scheme: light }
body { font: 15px/1.5 system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif; color: #1f2933;
  background: #f4f6f8; margin: 0 }
main { max-width: 1240px; margin: 0 auto; padding: 28px 20px 60px }
h1 { font-size: 26px; margin: 0 0 2px } h2 { font-size: 18px; margin: 0 0 2px }
p { margin: 0 0 10px; color: #52606d; max-width: 90ch }
section, .tile { background: white; border: 1px solid #e1e6eb; border-radius: 10px }
section { padding: 18px 20px; margin: 18px 0 }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px;
  margin: 18px 0 }
.tile { padding: 12px 16px }
.tile b { display: block; font-size: 22px; font-weight: 600; white-space: nowrap }
.tile span { color: #52606d; font-size: 13px }
.scroll { overflow-x: auto }
table { border-collapse: collapse; font-size: 12.5px; white-space: nowrap; width: 100% }
th { text-align: left; border-bottom: 2px solid #cbd2d9; padding: 4px 8px }
td { border-bottom: 1px solid #eef1f4; padding: 3px 8px }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
td.why { white-space: normal; min-width: 340px; color: #52606d }
tr.inside td:nth-child(2) { padding-left: 24px } tr:hover td { background: #f4f8ff }
""".strip()


def need_plotly() -> None:
    """UnsupportedError with what to install, unless plotly is there."""
    try:
        import plotly  # noqa: F401  # only to see that it is there
    except ModuleNotFoundError:
        raise UnsupportedError(
            'the HTML report needs plotly; install it with: pip install "bslite[report]"'
        ) from None


def page(e: Result) -> str:
    """The whole file."""
    need_plotly()
    return document(f"{e.model}, {' '.join(str(list(s)) for s in e.shapes)}", [body(e)])


def document(title: str, content: Sequence[str]) -> str:
    """A file that needs nothing else."""
    from plotly.offline import get_plotlyjs

    return "\n".join(
        [
            "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
            "<meta name='viewport' content='width=device-width, initial-scale=1'>",
            f"<title>{escape(title)}</title><style>{STYLE}</style>",
            f"<script>{get_plotlyjs()}</script></head><body><main>",
            *content,
            "</main></body></html>\n",
        ]
    )


def body(e: Result) -> str:
    """What a file says of one model: title, main figures, plots and table."""
    from bslite.explanation.views import figures

    predicted = figures.predictions(e)
    sections = [
        _section(
            "Time per layer",
            "What threads spent on a layer, divided by their number, so that the bars add up to the run. "
            "Grey: threads waiting for the layer to end. The tick is the least the machine allows.",
            figures.time_per_layer(e),
        ),
        _section(
            "Roofline",
            "Operations per byte that must move (inputs, weights and output once each) against the rate "
            "reached. The area of a point is its share of the time. A layer whose data stay in a cache may "
            "stand above the roof of memory.",
            figures.roofline(e),
        ),
        _section(
            "Who did what when",
            "One run, of median length. Drag to zoom, double-click to see all again.",
            figures.timeline(e),
        ),
        _section(
            "Memory",
            "By owner, while the same run goes on. Click a name in the legend to hide it.",
            figures.memory(e),
        ),
        _section(
            "Predicted against measured",
            "This plan holds no predicted times, so there is no plot."
            if predicted is None
            else "Time per layer, both axes logarithmic. The planner prices to choose what to stack.",
            predicted,
        ),
        f"<section><h2>Layers</h2><div class='scroll'>{_table(e)}</div></section>",
    ]
    return "\n".join(
        [
            f"<h1>{escape(e.model)}</h1><p>input {' '.join(str(list(s)) for s in e.shapes)}, "
            f"{e.profile.threads} thread(s), medians of {e.profile.runs} runs</p>",
            _tiles(e),
            *sections,
        ]
    )


def _tiles(e: Result) -> str:
    """The main figures: time, floor, rates, idle threads, memory."""
    p = e.profile
    seconds = sum(r.seconds for r in e.timed) or 1e-12
    idle = sum(idle for _, idle in p.walkers()) / (sum(b + i for b, i in p.walkers()) or 1.0)
    flops = sum(r.flops for r in e.layers)
    held = sum(e.memory.totals.values())
    tiles = {
        "a run": f"{p.untraced * 1e3:.2f} ms",
        "floor of its layers": f"{e.floor * 1e3:.2f} ms",
        "of the roofline": f"{100 * e.floor / seconds:.0f} %",
        f"GFLOP/s, of {e.limits.flops / 1e9:,.0f}": f"{flops / seconds / 1e9:,.0f}",
        "threads idle": f"{100 * idle:.1f} %",
        "memory": f"{held / 1e6:,.1f} MB",
    }
    return tiles_of(tiles)


def tiles_of(tiles: Mapping[str, str]) -> str:
    """Figures side by side: what they are -> the figure."""
    each = "".join(
        f"<div class='tile'><b>{value}</b><span>{name}</span></div>" for name, value in tiles.items()
    )
    return f"<div class='tiles'>{each}</div>"


def _section(title: str, text: str, figure: Any) -> str:
    config = {"displayModeBar": False, "responsive": True}
    plot = (
        figure.to_html(full_html=False, include_plotlyjs=False, config=config) if figure is not None else ""
    )
    return f"<section><h2>{title}</h2><p>{text}</p>{plot}</section>"


def _table(e: Result) -> str:
    kinds = ["" if i in WORDS else " class='n'" for i in range(len(HEADER))]
    head = "".join(f"<th{k}>{h}</th>" for k, h in zip(kinds, HEADER, strict=True))
    lines = [f"<tr><th class='n'>#</th>{head}<th>holds</th><th>why it ends there</th></tr>"]
    number = 0
    for r in e.rows:
        counted = r.seconds > 0 and (r.inside or r.stack is None)
        number += counted
        cells = "".join(f"<td{k}>{escape(c)}</td>" for k, c in zip(kinds, cells_of(r, None), strict=True))
        why = f"<td class='why'>{escape('; '.join(r.holds))}</td><td class='why'>{escape(r.apart)}</td>"
        inside = " class='inside'" if r.inside else ""
        lines.append(f"<tr{inside}><td class='n'>{number if counted else ''}</td>{cells}{why}</tr>")
    return f"<table>{''.join(lines)}</table>"


def table_of(header: Sequence[str], rows: Sequence[tuple[Sequence[str], bool]], words: Container[int]) -> str:
    """A table of lines of cells, those set back that are said to be; ``words``: columns to the left."""
    kinds = ["" if i in words else " class='n'" for i in range(len(header))]
    lines = [f"<tr>{''.join(f'<th{k}>{h}</th>' for k, h in zip(kinds, header, strict=True))}</tr>"]
    for cells, inside in rows:
        each = "".join(f"<td{k}>{escape(c)}</td>" for k, c in zip(kinds, cells, strict=True))
        lines.append(f"<tr class='inside'>{each}</tr>" if inside else f"<tr>{each}</tr>")
    return f"<table>{''.join(lines)}</table>"
