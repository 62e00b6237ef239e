"""Stacks of pooling, batch norm and ReLU: the time a layer takes against the depth of the stack."""

from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks.plot import style

OPS = 3  # layers of one block
MEMORY = "#000000"


def figure(data: dict[str, Any]) -> Figure:
    """A column of panels for each batch size, a row for each number of threads, a line for each engine."""
    results = data["results"]
    batches = sorted({r["batch"] for r in results})
    threads = sorted({r["threads"] for r in results})
    engines = [e for e in style.COLOURS if any(e in r["seconds"] for r in results)]
    drawn, axes = style.panels(len(threads), len(batches), 3.3, 3.0, sharex=True, sharey=True)
    for row, count in zip(axes, threads, strict=True):
        for ax, batch in zip(row, batches, strict=True):
            mine = [r for r in results if (r["batch"], r["threads"]) == (batch, count)]
            _panel(ax, mine, engines, data["roofline"][str(count)])
            ax.set_title(f"batch {batch}, {style.threads(count)}")
        row[0].set_ylabel("µs per layer and image")
    for ax in axes[-1]:
        ax.set_xlabel("depth: blocks of three layers")
    for ax in axes.flat:  # once all lines are drawn: they share their limits
        ax.set_yscale("log")  # what counts is how many times as long
        style.plain_ticks(ax.yaxis, style.round_numbers(*ax.get_ylim()))
    c, h, w = data["options"]["image"]
    what = f"Stacks of max pool, batch norm and ReLU on images of {c} channels, {h} x {w}"
    handles = [Line2D([], [], color=style.COLOURS[e], marker=style.MARKERS[e], label=e) for e in engines]
    handles.append(Line2D([], [], color=MEMORY, linestyle="--", linewidth=1, label="memory, there and back*"))
    style.head(drawn, what, data, threads, handles)
    style.footnote(drawn, "each layer's image read from memory and written to memory, at its measured speed")
    return drawn


def _panel(ax: Any, results: list[dict[str, Any]], engines: list[str], limits: dict[str, Any]) -> None:
    for engine in engines:
        mine = sorted((r for r in results if engine in r["seconds"]), key=lambda r: r["depth"])
        depths = [r["depth"] for r in mine]
        each = [1e6 * r["seconds"][engine] / (OPS * r["depth"] * r["batch"]) for r in mine]
        ax.plot(depths, each, color=style.COLOURS[engine], marker=style.MARKERS[engine])
    for r in results[:1]:
        bytes_ = r["op_bytes"] / (OPS * r["depth"] * r["batch"])
        ax.axhline(1e6 * bytes_ / limits["bandwidth"], color=MEMORY, linestyle="--", linewidth=1)
    ax.set_xscale("log")
    style.plain_ticks(ax.xaxis, [r["depth"] for r in results])
