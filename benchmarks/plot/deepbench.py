"""DeepBench: the best of the others relative to bslite, and the share of the streaming rate, by layer."""

from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from benchmarks.plot import style

SHADES = ("#0072B2", "#56B4E9", "#004A75", "#999999")  # by batch
TICKS = (0.25, 0.35, 0.5, 0.7, 0.85, 1, 1.2, 1.5, 2, 3, 4, 6, 8, 12, 16, 24)
EVEN, FULL = "#000000", "#D55E00"
AIM = 0.9  # share of the streaming rate


def figure(data: dict[str, Any]) -> Figure:
    """Two panels: ratios from 1 upwards, bars by batch; shares, with a mark for the time steps alone."""
    results = data["results"]
    layers = list(dict.fromkeys(r["net"] for r in results))
    batches = sorted({r["batch"] for r in results})
    drawn, axes = style.panels(2, 1, 2.2 + 1.0 * len(layers), 3.4)
    above, below = axes[:, 0]
    width = style.GROUP / len(batches)
    ratios = [1.0]
    for r in results:
        left = layers.index(r["net"]) - style.GROUP / 2 + batches.index(r["batch"]) * width
        bar: dict[str, Any] = {"align": "edge", "color": SHADES[batches.index(r["batch"]) % len(SHADES)]}
        if r["ratio"] is not None:
            ratios.append(r["ratio"])
            above.bar(left, r["ratio"] - 1, width * 0.92, bottom=1, **bar)
        share, alone = r["shares"]["forwards"], r["recurrent_shares"]["forwards"]
        if share is not None:
            below.bar(left, 100 * share, width * 0.92, **bar)
        if alone is not None:
            below.hlines(100 * alone, left, left + width * 0.92, color=EVEN, linewidth=2, zorder=4)
    above.axhline(1, color=EVEN, linewidth=1)
    style.ratio_axis(above, ratios, TICKS)
    above.set_ylabel("time of the best / bslite's")
    above.set_title(_mean(data))
    below.axhline(100 * AIM, color=FULL, linewidth=1.2, linestyle="--", zorder=5)
    below.set_ylabel("% of the streaming rate*")
    below.set_title("Share of the rate at which all threads read as many bytes")
    for ax in (above, below):
        style.names(ax, [_label(name, results) for name in layers])
    handles: list[Any] = [
        Patch(color=SHADES[i % len(SHADES)], label=f"batch {batch}") for i, batch in enumerate(batches)
    ]
    handles.append(Line2D([], [], color=EVEN, linewidth=2, label="time steps alone"))
    handles.append(Line2D([], [], color=FULL, linestyle="--", label=f"{100 * AIM:.0f} %, the aim"))
    what = "DeepBench's recurrent layers: bslite against the best of the others"
    style.head(drawn, what, data, {r["threads"] for r in results}, handles)
    style.footnote(
        drawn,
        "the weights once for each step at the rate measured in turns with bslite, always forwards, and the "
        "products with all inputs",
    )
    return drawn


def _mean(data: dict[str, Any]) -> str:
    mean = (data.get("summary") or {}).get("mean")
    above = "Above 1, bslite is faster"
    return above if mean is None else f"{above}; geometric mean {mean:.2f}"


def _label(name: str, results: list[dict[str, Any]]) -> str:
    """Name, size of the weights and number of steps."""
    r = next(r for r in results if r["net"] == name)
    cut = "" if list(r["lengths"]) == [r["steps"]] else " (cut)"
    return f"{name}\n{r['weight_bytes'] / 1e6:.0f} MB\n{r['steps']} step{'s' * (r['steps'] > 1)}{cut}"
