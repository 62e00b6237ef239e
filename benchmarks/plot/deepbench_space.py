"""The loop parameters' space: measured against predicted time of every point, and the search's picks."""

from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks.plot import style

COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#999999", "#004A75", "#8B4513",
    "#6A3D9A", "#7F7F00",
)  # fmt: skip
EVEN = "#000000"
NEAR = (1, 1.05, 1.2, 1.5, 2, 3, 5)  # ticks, where no point is beyond


def figure(data: dict[str, Any]) -> Figure:
    """Left all points on logarithmic axes; right, of each layer, its points relative to the best."""
    results = data["results"]
    drawn, axes = style.panels(1, 2, 5.6, 4.6)
    scatter, relative = axes[0]
    both: list[float] = []
    handles: list[Any] = []
    for i, r in enumerate(results):
        known = [p for p in r["points"] if p["measured"] is not None]
        if not known:
            continue
        colour = COLOURS[i % len(COLOURS)]
        x, y = [1e3 * p["predicted"] for p in known], [1e3 * p["measured"] for p in known]
        both += x + y
        scatter.plot(x, y, linestyle="", marker=".", color=colour, alpha=0.6)
        best = min(y)
        relative.plot([i] * len(y), [v / best for v in y], linestyle="", marker="_", color=colour)
        pick = r["points"][0]
        if pick["measured"] is not None:
            ring = {"linestyle": "", "marker": "o", "markerfacecolor": "none", "color": EVEN, "zorder": 5}
            scatter.plot([1e3 * pick["predicted"]], [1e3 * pick["measured"]], **ring)
            relative.plot([i], [1e3 * pick["measured"] / best], **ring)
        if r["gap"] is not None:
            relative.plot([i], [r["gap"]], linestyle="", marker="D", color=EVEN, zorder=6)
        label = f"{r['net']}, batch {r['batch']}: {_two(r['correlation'])}"
        handles.append(Line2D([], [], color=colour, linestyle="", marker="o", label=label))
    if both:
        ends = [min(both) * 0.9, max(both) * 1.1]
        scatter.plot(ends, ends, color=EVEN, linewidth=0.8)
        for axis, scale in ((scatter.xaxis, scatter.set_xscale), (scatter.yaxis, scatter.set_yscale)):
            scale("log")
            style.plain_ticks(axis, style.round_numbers(*ends))
    scatter.set_xlabel("predicted, ms")
    scatter.set_ylabel("measured, ms")
    correlation = (data.get("summary") or {}).get("correlation")
    scatter.set_title(f"All points: rank correlation {_two(correlation)}")
    relative.axhline(1.05, color=COLOURS[1], linewidth=1, linestyle="--")
    relative.set_yscale("log")
    highest = relative.get_ylim()[1]
    style.plain_ticks(relative.yaxis, NEAR if highest < NEAR[-1] else style.round_numbers(1, highest))
    relative.set_xticks(
        range(len(results)), [f"{r['net']}\n{r['batch']}" for r in results], rotation=90, fontsize=8
    )
    relative.set_ylabel("measured / the least measured")
    relative.set_title("The search's picks among their points")
    handles.append(
        Line2D(
            [], [], color=EVEN, linestyle="", marker="o", markerfacecolor="none", label="the search's pick"
        )
    )
    again = "pick / best, met again"
    handles.append(Line2D([], [], color=EVEN, linestyle="", marker="D", label=again))
    what = "Loop parameters of recurrent layers: every point predicted and measured"
    style.head(drawn, what, data, {r["threads"] for r in results}, handles, entry=2.3)
    return drawn


def _two(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
