"""On a GPU: how long torch takes, bslite being 1; and of stacks, the share of a copy's bandwidth."""

from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from benchmarks.plot import style

TICKS = (0.1, 0.2, 0.35, 0.5, 0.7, 1, 1.4, 2, 3, 4, 6, 10, 20, 50, 100)
TITLES = {
    "networks": "networks",
    "recurrent": "recurrent layers of DeepBench",
    "autotuned": "networks, torch.compile with max-autotune",
}
GOAL = 0.8


def figure(data: dict[str, Any]) -> Figure:
    """A panel for each part and batch size that was measured, one below the other."""
    timed = [r for r in data["results"] if r["seconds"].get("bslite")]
    timed = [r for r in timed if len(r["seconds"]) > 1]  # there is something to compare with
    keys = {(r["part"], r["batch"]) for r in timed}
    order = sorted(keys, key=lambda key: ((*TITLES, "stacks").index(key[0]), key[1]))
    parts = {key: [r for r in timed if (r["part"], r["batch"]) == key] for key in order}
    engines = [e for e in style.COLOURS if any(e in r["seconds"] for rs in parts.values() for r in rs)]
    widest = max((len(rs) for rs in parts.values()), default=1)
    drawn, axes = style.panels(max(1, len(parts)), 1, 2.2 + 0.75 * widest, 2.6)
    for ax, ((part, batch), results) in zip(axes[:, 0], parts.items(), strict=False):
        if part == "stacks":
            _shares(ax, results)
        else:
            style.ratio_bars(ax, results, [e for e in engines if e != "bslite"], TICKS)
            ax.set_title(f"{TITLES[part]}, batch {batch}")
        style.names(ax, [r["name"] for r in results], fontsize=8)
    handles: list[Any] = [Line2D([], [], color=style.COLOURS["bslite"], linewidth=2, label="bslite")]
    handles += [Patch(color=style.COLOURS[e], label=e) for e in engines if e != "bslite"]
    where = f"{data['device']['name']}, commit {data['commit']}"
    what = "Time on a GPU, relative to bslite: above 1, bslite is faster"
    style.head(drawn, what, data, (), handles, where)
    return drawn


def _shares(ax: Any, results: list[dict[str, Any]]) -> None:
    ax.plot(range(len(results)), [r["share"] for r in results], color=style.COLOURS["bslite"], marker="o")
    ax.axhline(GOAL, color="#000000", linestyle="--", linewidth=1)
    ax.set_ylim(bottom=0)
    ax.set_ylabel("of a copy's speed")
    ax.set_title("stacks of max pool, batch norm and ReLU: copies of the image, over the time")
