"""The plots of the report, made with plotly; each a function from an explanation to a figure."""

from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go

from bslite.explanation.data.pieces import PiecesResult
from bslite.explanation.data.result import Result
from bslite.explanation.data.rows import Row

#: What kinds of rows there are, with their colours; also the order of the legend.
COLOURS = {
    "convolution": "#2f6fdf",
    "depthwise and grouped": "#e8930c",
    "linear and matmul": "#8250df",
    "pooling": "#1a9e77",
    "stack": "#d6336c",
    "elementwise, norms": "#5c7080",
    "moving data": "#a5b1bb",
}
PIECES = {"engine": "#2f6fdf", "NumPy": "#e8930c", "control flow": "#8250df", "ONNX's evaluator": "#d6336c"}
WAITING, FLOOR = "#d8dee4", "#111827"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
DASHES = {"l2": "dot", "l3": "dash", "memory": "longdash"}
AREAS = {
    "weights": "#9db8ea",
    "input": "#1a9e77",
    "output": "#8250df",
    "scratch of all threads": "#e8930c",
    "arena, live": "#2f6fdf",
}


def family(r: Row) -> str:
    """The key of `COLOURS` that a row goes under."""
    if r.op == "stack":
        return "stack"
    if r.op.startswith("conv"):
        return "depthwise and grouped" if "depthwise" in r.kernels else "convolution"
    if r.op in ("linear", "block_linear", "matmul"):
        return "linear and matmul"
    if "pool" in r.op:
        return "pooling"
    return "elementwise, norms" if r.flops else "moving data"


def time_per_layer(e: Result) -> Any:
    """Bars in the order of execution: busy by family, waiting on top, the floor as a tick."""
    rows = [r for r in e.layers if r.seconds]
    labels = [f"{i + 1}" for i in range(len(rows))]
    figure = go.Figure()
    for name, colour in COLOURS.items():
        chosen = [i for i, r in enumerate(rows) if family(r) == name]
        if chosen:
            figure.add_bar(
                x=[labels[i] for i in chosen], y=[rows[i].busy * 1e6 for i in chosen], name=name,
                marker_color=colour, customdata=[hover(rows[i]) for i in chosen],
                hovertemplate="%{customdata}<extra></extra>",
            )  # fmt: skip
    figure.add_bar(
        x=labels, y=[r.wait * 1e6 for r in rows], name="threads waiting", marker_color=WAITING,
        customdata=[hover(r) for r in rows], hovertemplate="%{customdata}<extra></extra>",
    )  # fmt: skip
    figure.add_scatter(
        x=labels, y=[r.floor * 1e6 for r in rows], mode="markers", name="floor (roofline)",
        marker={"symbol": "line-ew", "size": max(4, min(14, 700 // max(1, len(rows)))),
                "line": {"width": 2, "color": FLOOR}},
        hovertemplate="floor %{y:.1f} µs<extra></extra>",
    )  # fmt: skip
    figure.update_layout(barmode="stack", bargap=0.15, xaxis_title="layer, in the order of execution")
    figure.update_xaxes(
        categoryorder="array", categoryarray=labels, type="category", tickangle=0, nticks=30, showgrid=False
    )
    figure.update_yaxes(title="µs", rangemode="tozero")
    return styled(figure, 430)


def time_per_piece(e: PiecesResult) -> Any:
    """Bars in the order in which pieces began, by what computes them; the floor as a tick."""
    labels = [str(r.number) for r in e.rows]
    figure = go.Figure()
    for how in dict.fromkeys(r.how for r in e.rows):
        chosen = [r for r in e.rows if r.how == how]
        figure.add_bar(
            x=[str(r.number) for r in chosen], y=[r.seconds * 1e6 for r in chosen], name=how,
            marker_color=PIECES.get(how), customdata=[escape(f"{r.what} {r.reason}") for r in chosen],
            hovertemplate="%{customdata}: %{y:.1f} µs<extra></extra>",
        )  # fmt: skip
    floors = [r for r in e.rows if r.floor is not None]
    figure.add_scatter(
        x=[str(r.number) for r in floors], y=[(r.floor or 0.0) * 1e6 for r in floors], mode="markers",
        name="floor (roofline)",
        marker={"symbol": "line-ew", "size": max(4, min(14, 700 // max(1, len(e.rows)))),
                "line": {"width": 2, "color": FLOOR}},
        hovertemplate="floor %{y:.1f} µs<extra></extra>",
    )  # fmt: skip
    figure.update_layout(bargap=0.15, xaxis_title="piece, in the order in which they began")
    figure.update_xaxes(
        categoryorder="array", categoryarray=labels, type="category", tickangle=0, nticks=30, showgrid=False
    )
    figure.update_yaxes(title="µs", rangemode="tozero")
    return styled(figure, 360)


def roofline(e: Result) -> Any:
    """GFLOP/s over flops per byte, both logarithmic; a point's area is its layer's share of the time."""
    rows = [r for r in e.layers if r.flops and r.seconds and r.bytes + r.weights]
    intensity = [r.flops / (r.bytes + r.weights) for r in rows]
    low, high = min([0.1, *intensity]) / 1.5, max([100.0, *intensity]) * 1.5
    figure = go.Figure()
    top = e.limits.flops / 1e9
    for name, rate in e.limits.bandwidth.items():
        knee = e.limits.flops / rate
        figure.add_scatter(
            x=[low, min(knee, high)], y=[low * rate / 1e9, min(knee, high) * rate / 1e9], mode="lines",
            line={"color": "#6b7885", "width": 1.5, "dash": DASHES.get(name, "dot")}, hoverinfo="skip",
            name=f"{_level(name)}, {rate / 1e9:,.0f} GB/s",
        )  # fmt: skip
    figure.add_scatter(
        x=[low, high], y=[top, top], mode="lines", line={"color": FLOOR, "width": 2}, hoverinfo="skip",
        name=f"multiply-adds, {top:,.0f} GFLOP/s",
    )  # fmt: skip
    largest = max((r.share for r in rows), default=1.0)
    for name, colour in COLOURS.items():
        chosen = [i for i, r in enumerate(rows) if family(r) == name]
        if chosen:
            figure.add_scatter(
                x=[intensity[i] for i in chosen], y=[rows[i].gflops for i in chosen], mode="markers",
                name=name, customdata=[hover(rows[i]) for i in chosen],
                hovertemplate="%{customdata}<extra></extra>",
                marker={"size": [7 + 21 * (rows[i].share / largest) ** 0.5 for i in chosen],
                        "color": colour, "opacity": 0.7, "line": {"width": 1, "color": "white"}},
            )  # fmt: skip
    figure.update_xaxes(type="log", title="FLOP per compulsory byte", dtick=1)
    bottom = min([1.0, *(r.gflops for r in rows)]) / 1.5
    figure.update_yaxes(
        type="log", title="GFLOP/s", dtick=1, range=[float(np.log10(bottom)), float(np.log10(top * 2))]
    )
    figure.update_xaxes(range=[float(np.log10(low)), float(np.log10(high))])
    return styled(figure, 520)


def timeline(e: Result) -> Any:
    """What each walker did in one run. Items of a step in a row are one bar, a stack's images are not."""
    items = e.profile.items
    home = {step: r for r in e.timed for step in r.steps}
    bars: dict[str, list[tuple[float, float, int, str]]] = {name: [] for name in COLOURS}
    for walker in range(e.profile.threads):
        mine = np.flatnonzero(items.walker == walker)
        mine = mine[np.argsort(items.start[mine], kind="stable")]
        stacks = np.array([home[s].op == "stack" for s in items.step[mine].tolist()], bool)
        if not len(mine):
            continue  # it came too late for any item
        cuts = np.flatnonzero((np.diff(items.step[mine], prepend=-1) != 0) | stacks)
        for first, stop in zip(cuts, [*cuts[1:], len(mine)], strict=True):
            run = mine[first:stop]
            r = home[int(items.step[run[0]])]
            start, end = float(items.start[run[0]]), float(items.stop[run[-1]])
            said = f"<b>{escape(r.name)}</b><br>{len(run)} item(s), {1e6 * (end - start):,.1f} µs"
            bars[family(r)].append((1e3 * start, 1e3 * (end - start), walker, said))
    figure = go.Figure()
    for name, found in bars.items():
        if found:
            starts, lengths, walkers, texts = zip(*found, strict=True)
            figure.add_bar(
                orientation="h", base=starts, x=lengths, y=[f"walker {w}" for w in walkers], name=name,
                marker={"color": COLOURS[name], "line": {"width": 0.5, "color": "white"}},
                customdata=texts, hovertemplate="%{customdata}<extra></extra>", width=0.7,
            )  # fmt: skip
    figure.update_layout(barmode="overlay")
    figure.update_xaxes(title="ms from the first item's start")
    figure.update_yaxes(
        type="category", categoryorder="array", showgrid=False,
        categoryarray=[f"walker {w}" for w in reversed(range(e.profile.threads))],
    )  # fmt: skip
    return styled(figure, 200 + 42 * e.profile.threads)


def memory(e: Result) -> Any:
    """Megabytes by owner while the run goes on; the arena by what is live in it."""
    m = e.memory
    times = [1e3 * t for t in (*m.starts, float(e.profile.items.stop.max(initial=0.0)))]
    names = [r.name for step in range(len(m.live)) for r in e.timed if step in r.steps]
    figure = go.Figure()
    for name, colour in AREAS.items():
        size = [m.totals[name]] * len(m.live) if name in m.totals else list(m.live)
        figure.add_scatter(
            x=times, y=[s / 1e6 for s in (*size, size[-1])] if size else [], name=name, stackgroup="all",
            line={"width": 0.5, "color": colour, "shape": "hv"}, fillcolor=colour,
            customdata=[escape(n) for n in (*names, names[-1])] if len(names) == len(m.live) > 0 else None,
            hovertemplate=f"{name}: %{{y:.2f}} MB<br>%{{customdata}}<extra></extra>",
        )  # fmt: skip
    held = sum(m.totals[name] for name in m.totals)
    figure.add_scatter(
        x=[times[0], times[-1]] if times else [], y=[held / 1e6] * 2, mode="lines", hoverinfo="skip",
        name="allocated, whole arena included", line={"color": FLOOR, "width": 1.5, "dash": "dash"},
    )  # fmt: skip
    figure.update_xaxes(title="ms from the first item's start", showgrid=False)
    figure.update_yaxes(title="MB", rangemode="tozero")
    return styled(figure, 400)


def predictions(e: Result) -> Any | None:
    """Measured over predicted time of each row, or None where the plan predicts nothing."""
    rows = [r for r in e.layers if r.predicted and r.seconds]
    if not rows:
        return None
    figure = go.Figure()
    ends = [f(f(r.predicted or 0, r.seconds) * 1e6 for r in rows) for f in (min, max)]
    figure.add_scatter(
        x=ends, y=ends, mode="lines", name="equal", line={"color": FLOOR, "width": 1.5}, hoverinfo="skip"
    )
    for name, colour in COLOURS.items():
        chosen = [r for r in rows if family(r) == name]
        if chosen:
            figure.add_scatter(
                x=[1e6 * (r.predicted or 0) for r in chosen], y=[1e6 * r.seconds for r in chosen],
                mode="markers", name=name, marker={"color": colour, "size": 9, "opacity": 0.8},
                customdata=[hover(r) for r in chosen], hovertemplate="%{customdata}<extra></extra>",
            )  # fmt: skip
    figure.update_xaxes(type="log", title="predicted, µs", dtick=1)
    figure.update_yaxes(type="log", title="measured, µs", dtick=1)
    return styled(figure, 480)


def hover(r: Row) -> str:
    """The text that a pointer over a row shows."""
    lines = [
        f"<b>{escape(r.name)}</b>",
        f"{r.op}, {escape('+'.join(dict.fromkeys(r.kernels)))}, {' × '.join(map(str, r.shape))}",
        f"{1e6 * r.seconds:,.1f} µs, {100 * r.share:.1f} % of the run",
        f"{r.gflops:,.1f} GFLOP/s, {r.gbytes:,.1f} GB/s",
        f"{100 * r.roofline:.0f} % of the roofline, bound by {_level(r.bound)}",
    ]
    if r.inside:
        lines.append(f"inside stack {r.stack}")
    if r.predicted:
        lines.append(f"predicted {1e6 * r.predicted:,.1f} µs")
    return "<br>".join([*lines, *map(escape, r.holds)])


def styled(figure: Any, height: int) -> Any:
    """The look all plots share."""
    figure.update_layout(
        template="plotly_white", height=height, margin={"l": 64, "r": 16, "t": 16, "b": 56},
        font={"family": FONT, "size": 13, "color": "#1f2933"}, hoverlabel={"align": "left"},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
    )  # fmt: skip
    return figure


def _level(name: str) -> str:
    return name.upper() if name in ("l1", "l2", "l3") else name
