"""Rules, choice and exhaustive search: images per second against cores, and costs over the best."""

from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks.plot import style

COLUMNS = 3
LINES = {  # who: colour, marker
    "bslite": ("#0072B2", "o"),
    "width": ("#009E73", "^"),
    "intel": ("#E69F00", "s"),
    "tensorflow": ("#D55E00", "v"),
    "openvino": ("#999999", "X"),
}


def figure(data: dict[str, Any]) -> Figure:
    """A panel for each network: images per second for throughput, of the best setting and of each choice,
    over the best's; filled marks are measured, hollow ones simulated.
    """
    results = [r for r in data["results"] if r["target"] == "throughput" and not r["failures"]]
    nets = list(dict.fromkeys(r["net"] for r in results))
    columns = min(COLUMNS, len(nets))
    rows = -(-len(nets) // columns)
    drawn, axes = style.panels(rows, columns, 3.3, 2.7)
    for ax in axes.flat:
        ax.set_visible(False)
    for ax, net in zip(axes.flat, nets, strict=False):
        _panel(ax, [r for r in results if r["net"] == net])
        ax.set_title(net)
    for ax in axes[:, 0]:
        ax.set_ylabel("images/s over the best's")
    handles = [
        Line2D([], [], color=colour, marker=marker, linewidth=1.2, label=who)
        for who, (colour, marker) in LINES.items()
    ]
    cores = sorted({r["cores"] for r in results})
    what = "Throughput by rules and by the tuner, over exhaustive search"
    kinds = {r["kind"] for r in results}
    how = "filled: measured, hollow: simulated" if len(kinds) == 2 else next(iter(kinds))
    where = f"{style.machine_line(data)}; {how}. Commit {data['commit']}"
    style.head(drawn, what, data, cores, list(handles), where)
    return drawn


def _panel(ax: Any, results: list[dict[str, Any]]) -> None:
    ax.set_visible(True)
    ax.axhline(1, color=style.LIMIT, linewidth=1)
    each = sorted(results, key=lambda r: r["cores"])
    for who, (colour, marker) in LINES.items():
        share = [r["settings"][r["chosen"][who]][1] / r["settings"][r["best"]][1] for r in each]
        ax.plot([r["cores"] for r in each], share, color=colour, linewidth=1.2)
        for r, y in zip(each, share, strict=True):
            face = colour if r["kind"] == "measured" else "white"
            ax.plot([r["cores"]], [y], marker=marker, color=colour, markerfacecolor=face, linestyle="")
    ax.set_xscale("log")
    style.plain_ticks(ax.xaxis, [r["cores"] for r in each])
    ax.set_ylim(0, 1.08)
    ax.set_xlabel("cores")
