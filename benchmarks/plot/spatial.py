"""One loop nest against kernel by kernel on a spatial accelerator: times as long, against the size."""

from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks.plot import style

WAYS = {"kernels": "#D55E00", "one tile": "#E69F00", "few kernels": "#0072B2"}
CELLS = {"lstm": "o", "gru": "^"}
EVEN = "#000000"


def figure(data: dict[str, Any]) -> Figure:
    """A row of panels for each machine, a column for each batch size."""
    results = data["results"]
    machines = list(dict.fromkeys(r["machine"] for r in results))
    batches = sorted({r["batch"] for r in results})
    drawn, axes = style.panels(len(machines), len(batches), 3.3, 2.7, sharex=True, sharey="row")
    for row, machine in zip(axes, machines, strict=True):
        for ax, batch in zip(row, batches, strict=True):
            mine = [r for r in results if (r["machine"], r["batch"]) == (machine, batch)]
            _panel(ax, mine)
            ax.set_title(f"{machine}, batch {batch}", fontsize=10)
        row[0].set_ylabel("cycles over the loop's")
    for ax in axes[-1]:
        ax.set_xlabel("hidden units")
    for ax in axes.flat:
        style.plain_ticks(ax.yaxis, style.round_numbers(*ax.get_ylim()))
    handles: list[Any] = [Line2D([], [], color=colour, label=way) for way, colour in WAYS.items()]
    handles += [
        Line2D([], [], color=style.QUIET, marker=marker, linestyle="", label=cell)
        for cell, marker in CELLS.items()
    ]
    what = "Recurrent layers kernel by kernel, against one loop nest on the same units"
    where = f"Simulated cycles, DeepBench's problems, weights in float32. Commit {data['commit']}"
    style.head(drawn, what, data, (), handles, where)
    return drawn


def _panel(ax: Any, results: list[dict[str, Any]]) -> None:
    ax.axhline(1, color=EVEN, linewidth=1)
    for way, colour in WAYS.items():
        for cell, marker in CELLS.items():
            mine = sorted(
                (r for r in results if r["kind"] == cell and way in r["over_loop"]), key=lambda r: r["hidden"]
            )
            sizes, ratios = [r["hidden"] for r in mine], [r["over_loop"][way] for r in mine]
            ax.plot(sizes, ratios, color=colour, marker=marker, linestyle="-" if cell == "lstm" else ":")
    ax.set_xscale("log")
    ax.set_yscale("log")
    style.plain_ticks(ax.xaxis, [256, 512, 1024, 2048])
