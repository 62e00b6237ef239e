"""Peers: how long the others take, bslite being 1, for every network; one panel for each batch size."""

from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from benchmarks.plot import style

TICKS = (0.25, 0.35, 0.5, 0.7, 1, 1.4, 2, 3, 4, 6, 8, 12, 16, 24, 32)


def figure(data: dict[str, Any]) -> Figure:
    """Grouped bars from 1, upwards where the other takes longer; a mark where the roofline's floor is."""
    results = [r for r in data["results"] if "bslite" in r["seconds"]]
    batches = list(dict.fromkeys(r["batch"] for r in results))
    engines = [
        e for e in style.COLOURS if e != "bslite" and any(e in r["seconds"] for r in results)
    ]  # bslite is the line at 1
    most = max(sum(r["batch"] == b for r in results) for b in batches)
    drawn, axes = style.panels(len(batches), 1, 2.2 + 1.05 * most, 3.7)
    for ax, batch in zip(axes[:, 0], batches, strict=True):
        mine = [r for r in results if r["batch"] == batch]
        style.ratio_bars(ax, mine, engines, TICKS, floor)
        style.names(ax, [f"{r['net']}\n{1e3 * r['seconds']['bslite']:.1f} ms" for r in mine])
        ax.set_title(f"batch {batch}")
    handles: list[Any] = [Line2D([], [], color=style.COLOURS["bslite"], linewidth=2, label="bslite")]
    handles += [Patch(color=style.COLOURS[e], label=e) for e in engines]
    handles.append(Line2D([], [], color=style.LIMIT, linewidth=2, label="floor of the roofline*"))
    what = "Time of one inference, relative to bslite: above 1, bslite is faster"
    style.head(drawn, what, data, {r["threads"] for r in results}, handles)
    style.footnote(
        drawn,
        f"the network's arithmetic at the rate of {_rate(results)}, or weights, input and output "
        "once at the speed of memory",
    )
    return drawn


def _rate(results: list[dict[str, Any]]) -> str:
    """Whose rate `floor` takes."""
    ours = any(r.get("fma_floor") for r in results)
    return "bslite's microkernel alone, out of L1 cache" if ours else "SGEMM"


def floor(result: dict[str, Any]) -> float | None:
    """Seconds the network takes at least, at the rate of our microkernel, where that was measured."""
    found = result.get("fma_floor") or result.get("floor")
    return None if found is None else float(found)
