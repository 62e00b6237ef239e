"""What all pictures share: colours, fonts, titles, and files that only change when the picture does."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from benchmarks.origin import machine_line

# Okabe and Ito's colours, which the colour-blind can tell apart too; black is left for limits.
COLOURS = {
    "bslite": "#0072B2",
    "bslite-layerwise": "#56B4E9",
    "torch": "#D55E00",
    "torch-nhwc": "#E69F00",
    "torch channels_last": "#E69F00",
    "inductor": "#CC79A7",
    "inductor channels_last": "#F0E442",
    "onnxruntime": "#009E73",
    "openvino": "#999999",
    "depth-first": "#0072B2",
    "layerwise": "#E69F00",
    "torch-graph": "#009E73",
    "max-autotune": "#CC79A7",
}
# And a form for each, for prints without colour.
MARKERS = dict(zip(COLOURS, "osvDDX^Px" + "os" + "^D", strict=True))
GRID, QUIET, LIMIT = "#DDDDDD", "#444444", "#000000"
GROUP = 0.84  # of the room between two names, taken by bars
FEW = 7  # numbers on an axis
MARGIN, LINE, ENTRY, NARROWEST = 0.12, 0.24, 1.75, 9.0  # inches: of the head, of an entry of the legend
RC: dict[Any, Any] = {  # Any: its own type lists every key there is
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "svg.fonttype": "path",  # looks the same everywhere
    "svg.hashsalt": "bslite",  # the same picture is the same file
}


def panels(rows: int, columns: int, width: float, height: float, **options: Any) -> tuple[Figure, Any]:
    """A figure of ``rows`` x ``columns`` panels of this size in inches, and the array of its axes."""
    figure = Figure(figsize=(max(NARROWEST, width * columns), height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def head(
    figure: Figure,
    what: str,
    data: dict[str, Any],
    used: Iterable[int],
    handles: list[Any],
    where: str | None = None,
    entry: float = ENTRY,
) -> None:
    """Above the panels: what is shown, where it was measured (machine, threads, commit), the legend, whose
    entries are ``entry`` inches wide.

    ``where`` stands in the place of the machine and threads where nothing was timed.
    """
    width, panels_height = figure.get_size_inches()
    columns = min(len(handles), int((width - 2 * MARGIN) / entry))
    top = 3 * MARGIN + 2 * LINE + LINE * -(-len(handles) // columns)
    height = panels_height + top
    figure.set_size_inches(width, height)
    engine: Any = figure.get_layout_engine()
    engine.set(rect=(0, 0, 1, panels_height / height))
    left = MARGIN / width
    figure.text(left, 1 - MARGIN / height, what, va="top", fontsize=13, fontweight="bold")
    where = where or f"{machine_line(data)}. {threads(*used)}, commit {data['commit']}"
    figure.text(left, 1 - (MARGIN + LINE) / height, where, va="top", fontsize=9, color=QUIET)
    figure.legend(
        handles=handles, ncols=columns, loc="upper left", borderaxespad=0, borderpad=0,
        bbox_to_anchor=(left, 1 - (2 * MARGIN + 2 * LINE) / height), handlelength=1.8,
    )  # fmt: skip


def footnote(figure: Figure, text: str) -> None:
    """Below the panels."""
    figure.supxlabel(f"* {text}", fontsize=9, color=QUIET, ha="left", x=MARGIN / figure.get_figwidth())


def threads(*counts: int) -> str:
    """``1 thread``, ``2 threads``, ``1 and 2 threads``."""
    each = sorted(set(counts))
    return f"{' and '.join(map(str, each))} thread{'s' * (each[-1] > 1)}"


def ratio_bars(
    ax: Any, results: Sequence[dict[str, Any]], engines: Sequence[str], ticks: Sequence[float],
    floor: Callable[[dict[str, Any]], float | None] = lambda result: None,
) -> None:  # fmt: skip
    """For each result a bar for each engine: its time over bslite's, from a line at 1; a mark at a floor."""
    width = GROUP / max(1, len(engines))
    ratios = [1.0]
    for i, r in enumerate(results):
        ours = r["seconds"]["bslite"]
        for j, engine in enumerate(engines):
            if engine in r["seconds"]:
                ratios.append(r["seconds"][engine] / ours)
                bar: dict[str, Any] = {"bottom": 1, "align": "edge", "color": COLOURS[engine]}
                ax.bar(i - GROUP / 2 + j * width, ratios[-1] - 1, width * 0.92, **bar)
        if (limit := floor(r)) is not None:
            ratios.append(limit / ours)
            ax.hlines(limit / ours, i - GROUP / 2, i + GROUP / 2, color=LIMIT, linewidth=2, zorder=4)
    ax.axhline(1, color=COLOURS["bslite"], linewidth=2, zorder=3)
    ratio_axis(ax, ratios, ticks)
    ax.set_ylabel("time / bslite's time")


def bars_of_batches(
    data: dict[str, Any], ticks: Sequence[float], floor: Callable[[dict[str, Any]], float | None],
    name: Callable[[dict[str, Any]], str], used: Iterable[int], what: str, note: str,
) -> Figure:  # fmt: skip
    """A panel of ratio bars for each batch size; ``note`` says what the marks at floors are."""
    results = [r for r in data["results"] if "bslite" in r["seconds"]]
    batches = list(dict.fromkeys(r["batch"] for r in results))
    engines = [
        e for e in COLOURS if e != "bslite" and any(e in r["seconds"] for r in results)
    ]  # bslite is the line at 1
    most = max(sum(r["batch"] == b for r in results) for b in batches)
    drawn, axes = panels(len(batches), 1, 2.2 + 1.05 * most, 3.7)
    for ax, batch in zip(axes[:, 0], batches, strict=True):
        mine = [r for r in results if r["batch"] == batch]
        ratio_bars(ax, mine, engines, ticks, floor)
        names(ax, [f"{name(r)}\n{1e3 * r['seconds']['bslite']:.1f} ms" for r in mine])
        ax.set_title(f"batch {batch}")
    handles: list[Any] = [Line2D([], [], color=COLOURS["bslite"], linewidth=2, label="bslite")]
    handles += [Patch(color=COLOURS[e], label=e) for e in engines]
    handles.append(Line2D([], [], color=LIMIT, linewidth=2, label="floor of the roofline*"))
    head(drawn, what, data, used, handles)
    footnote(drawn, note)
    return drawn


def ratio_axis(ax: Any, ratios: Sequence[float], ticks: Sequence[float]) -> None:
    """A logarithmic axis from the least of the ratios to the largest, and those of the ticks on it."""
    ax.set_yscale("log")
    low, high = min(ratios) * 0.93, max(ratios) * 1.07
    plain_ticks(ax.yaxis, [t for t in ticks if low <= t <= high])
    ax.set_ylim(low, high)


def names(ax: Any, labels: Sequence[str], **options: Any) -> None:
    """What stands under groups of bars, the first at 0."""
    ax.set_xticks(range(len(labels)), labels, **options)
    ax.set_xlim(-0.6, len(labels) - 0.4)
    ax.grid(axis="x", visible=False)
    ax.tick_params(axis="x", length=0)


def plain_ticks(axis: Any, values: Iterable[float]) -> None:
    """Ticks at just these values of a logarithmic axis, written plainly."""
    axis.set_major_locator(FixedLocator(sorted(set(values))))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def round_numbers(low: float, high: float) -> list[float]:
    """Those between the two: 1, 2, 5, 10, ... or, if these are many, tens alone."""
    decades = [10.0**i for i in range(-3, 7)]
    fine = [d * step for d in decades for step in (1, 2, 5) if low <= d * step <= high]
    return fine if len(fine) <= FEW else [d for d in decades if low <= d <= high]


def save(figure: Figure, path: Path) -> None:
    """Write an .svg or .png."""
    figure.savefig(path, dpi=130, metadata={"Date": None} if path.suffix == ".svg" else None)
