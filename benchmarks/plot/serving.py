"""Serving: the 99th percentile of latency over the load; a panel for each network and number of streams."""

from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from benchmarks.plot import style


def figure(data: dict[str, Any]) -> Figure:
    """A line for each engine, dashed without batches."""
    from benchmarks.serving.command import Result, merged

    results = merged([Result(**r) for r in data["results"]])
    names = list(dict.fromkeys(r.net for r in results))
    ways = sorted({(r.case["streams"], r.case["threads"]) for r in results})
    made, axes = style.panels(len(names), len(ways), 4.6, 3.2, sharex=True, sharey="row")
    for row, name in zip(axes, names, strict=True):
        for axis, (streams, threads) in zip(row, ways, strict=True):
            own = [r for r in results if (r.net, r.case["streams"]) == (name, streams)]
            for engine, batch in sorted({(r.case["engine"], r.case["max_batch"]) for r in own}):
                points = sorted(
                    (r.load, 1e3 * r.p99)
                    for r in own
                    if (r.case["engine"], r.case["max_batch"]) == (engine, batch) and r.p99 is not None
                )
                axis.plot(
                    *zip(*points, strict=True), color=style.COLOURS[engine], marker=style.MARKERS[engine],
                    linestyle="-" if batch > 1 else "--",
                )  # fmt: skip
            runs = "1 run" if streams == 1 else f"{streams} runs"
            axis.set_title(f"{name}, {runs} of {style.threads(threads)}")
            axis.set_xscale("log")
            axis.set_yscale("log")
            loads = sorted({r.load for r in results})
            axis.xaxis.set_major_locator(FixedLocator(loads))
            axis.xaxis.set_minor_locator(NullLocator())
            axis.yaxis.set_minor_formatter(NullFormatter())
            for each in (axis.xaxis, axis.yaxis):
                each.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
        row[0].set_ylabel("p99, ms")
    for axis in axes[-1]:
        axis.set_xlabel("load, of the capacity of 1 run without batches")
    engines = sorted({r.case["engine"] for r in results})
    lines: tuple[tuple[Any, str], ...] = (("-", "batches"), ("--", "no batches"))
    handles = [
        Line2D([], [], color=style.COLOURS[e], marker=style.MARKERS[e], linestyle=line, label=f"{e}, {what}")
        for e in engines
        for line, what in lines
    ]
    what = "Latency of a server under random arrivals: 99 of 100 requests are answered sooner"
    style.head(made, what, data, [data["options"]["threads"]], handles, entry=2.2)
    return made
