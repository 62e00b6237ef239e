"""Peers: how long the others take, bslite being 1, for every network; one panel for each batch size."""

from typing import Any

from matplotlib.figure import Figure

from benchmarks.plot import style

TICKS = (0.25, 0.35, 0.5, 0.7, 1, 1.4, 2, 3, 4, 6, 8, 12, 16, 24, 32)


def figure(data: dict[str, Any]) -> Figure:
    """Grouped bars from 1, upwards where the other takes longer; a mark where the roofline's floor is."""
    return style.bars_of_batches(
        data, TICKS, floor, lambda r: str(r["net"]), {r["threads"] for r in data["results"]},
        "Time of one inference, relative to bslite: above 1, bslite is faster",
        f"the network's arithmetic at the rate of {_rate(data['results'])}, or weights, input and output "
        "once at the speed of memory",
    )  # fmt: skip


def _rate(results: list[dict[str, Any]]) -> str:
    """Whose rate `floor` takes."""
    ours = any(r.get("fma_floor") for r in results)
    return "bslite's microkernel alone, out of L1 cache" if ours else "SGEMM"


def floor(result: dict[str, Any]) -> float | None:
    """Seconds the network takes at least, at the rate of our microkernel, where that was measured."""
    found = result.get("fma_floor") or result.get("floor")
    return None if found is None else float(found)
