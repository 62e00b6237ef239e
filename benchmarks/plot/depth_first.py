"""Depth-first against layerwise: for every network the speed-up and, below it, memory, against the batch."""

from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks.plot import style

COLUMNS = 4
MODES = ("layerwise", "depth-first")
EVEN = "#000000"
SHADES, MARKERS = ("#56B4E9", "#0072B2", "#004A75", "#001F33"), "os^D"  # of the speed-up, by threads
DASHES: dict[str, Any] = {"layerwise": "--", "depth-first": "-"}


def figure(data: dict[str, Any]) -> Figure:
    """Two panels for each network; ratios and memory have the same scale for all."""
    results = data["results"]
    nets = list(dict.fromkeys(r["net"] for r in results))
    threads = sorted({r["threads"] for r in results})
    columns = min(COLUMNS, len(nets))
    blocks = -(-len(nets) // columns)
    drawn, axes = style.panels(2 * blocks, columns, 2.7, 2.2)
    for ax in axes.flat:
        ax.set_visible(False)
    for i, net in enumerate(nets):
        above, below = axes[2 * (i // columns), i % columns], axes[2 * (i // columns) + 1, i % columns]
        mine = [r for r in results if r["net"] == net]
        _speed(above, mine, threads)
        _memory(below, mine, threads)
        above.set_title(net)
        above.tick_params(axis="x", labelbottom=False)
        if i % columns == 0:
            above.set_ylabel("speed-up")
            below.set_ylabel(f"MB between layers,\n{style.threads(threads[-1])}")
        below.set_xlabel("batch")
    _same_scale(axes[0::2].flat)
    _same_scale(axes[1::2].flat)
    what = "Depth-first against layer by layer, with the same kernels and the same bits"
    style.head(drawn, what, data, threads, _handles(threads))
    return drawn


def _speed(ax: Any, results: list[dict[str, Any]], threads: list[int]) -> None:
    ax.set_visible(True)
    ax.axhline(1, color=EVEN, linewidth=1)
    for i, count in enumerate(threads):
        mine = [r for r in results if r["threads"] == count]
        ax.plot(*_line({r["batch"]: r["ratio"] for r in mine}), **_shade(i))
    _batch_axis(ax, results)


def _memory(ax: Any, results: list[dict[str, Any]], threads: list[int]) -> None:
    """Lines as planned, crosses as measured; with the most threads, where depth-first keeps most."""
    ax.set_visible(True)
    mine = [r for r in results if r["threads"] == threads[-1]]
    for mode, colour in zip(MODES, map(style.COLOURS.__getitem__, MODES), strict=True):
        planned = _line({r["batch"]: r["planned"].get(mode) for r in mine}, 1e-6)
        measured = _line({r["batch"]: r["measured"].get(mode) for r in mine}, 1e-6)
        ax.plot(*planned, color=colour, linestyle=DASHES[mode])
        ax.plot(*measured, color=colour, linestyle="", marker="x")
    ax.set_yscale("log")
    _batch_axis(ax, results)


def _line(values: dict[int, float | None], unit: float = 1.0) -> tuple[list[int], list[float]]:
    """Batches and values in order, without those that have none."""
    found = [(b, unit * v) for b, v in sorted(values.items()) if v is not None]
    return [b for b, _ in found], [v for _, v in found]


def _batch_axis(ax: Any, results: list[dict[str, Any]]) -> None:
    ax.set_xscale("log")
    style.plain_ticks(ax.xaxis, {r["batch"] for r in results})


def _same_scale(axes: Any) -> None:
    """The same limits for all, so that one net can be held against another."""
    used = [ax for ax in axes if ax.get_visible()]
    limits = [ax.get_ylim() for ax in used]
    for ax in used:
        ax.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
        if ax.get_yscale() == "log":
            style.plain_ticks(ax.yaxis, style.round_numbers(*ax.get_ylim()))


def _shade(i: int) -> dict[str, Any]:
    return {"color": SHADES[i % len(SHADES)], "marker": MARKERS[i % len(MARKERS)]}


def _handles(threads: list[int]) -> list[Any]:
    handles: list[Any] = [
        Line2D([], [], **_shade(i), label=f"speed-up, {style.threads(count)}")
        for i, count in enumerate(threads)
    ]
    for mode in MODES:
        label = f"{mode}, MB"
        handles.append(Line2D([], [], color=style.COLOURS[mode], linestyle=DASHES[mode], label=label))
    return [*handles, Line2D([], [], color=style.QUIET, linestyle="", marker="x", label="measured")]
