"""One run as a trace in Chrome's JSON format, which Perfetto reads: a track per walker, a slice per item.

The format: "Trace Event Format", Google, events "M" (names) and "X" (a slice with a duration, in µs).
"""

import json
from typing import Any

from bslite.explanation.data.result import Result
from bslite.explanation.data.rows import Row


def trace_json(e: Result) -> str:
    """The run in `Profile.items`, as JSON."""
    return json.dumps({"traceEvents": events(e), "displayTimeUnit": "ns"})


def events(e: Result, process: int = 1, origin: float = 0.0) -> list[dict[str, Any]]:
    """The tracks and slices of one run that starts at ``origin``, in µs, under a number of its own."""
    return [*_tracks(e, process), *_slices(e, process, origin)]


def _tracks(e: Result, process: int) -> list[dict[str, Any]]:
    named = {"name": "process_name", "ph": "M", "pid": process, "tid": 0, "args": {"name": e.model}}
    return [named] + [
        {"name": "thread_name", "ph": "M", "pid": process, "tid": w, "args": {"name": f"walker {w}"}}
        for w in range(e.profile.threads)
    ]


def _slices(e: Result, process: int, origin: float) -> list[dict[str, Any]]:
    items = e.profile.items
    home: dict[int, Row] = {step: r for r in e.timed for step in r.steps}
    kernels = {step: k for r in e.timed for step, k in zip(r.steps, r.kernels, strict=True)}
    columns = (items.step, items.item, items.walker, items.start, items.stop)
    slices = []
    for step, item, walker, start, stop in zip(*(c.tolist() for c in columns), strict=True):
        r = home[step]
        args: dict[str, Any] = {"layer": r.name, "kernel": kernels[step], "step": step, "item": item}
        if step == r.main and r.flops and stop > start:
            args["GFLOP/s"] = round(r.flops / r.items / (stop - start) / 1e9, 2)
        slices.append(
            {
                "name": r.name, "cat": kernels[step], "ph": "X", "pid": process, "tid": walker,
                "ts": origin + start * 1e6, "dur": (stop - start) * 1e6, "args": args,
            }
        )  # fmt: skip
    return slices
