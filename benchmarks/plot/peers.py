"""Peers: how long the others take, bslite being 1, for every network; a panel for each batch, precision."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from benchmarks.plot import style

TICKS = (0.25, 0.35, 0.5, 0.7, 1, 1.4, 2, 3, 4, 6, 8, 12, 16, 24, 32)
WORDS = ("bfloat16_3x", "bfloat16", "ieee")  # of precisions, that names of columns end in; float32 is in none


def figure(data: dict[str, Any]) -> Figure:
    """Grouped bars from 1, upwards where the other takes longer; a mark where the roofline's floor is."""
    results = data["results"]
    batches = dict.fromkeys(r["batch"] for r in results)
    shown = [
        _panel(r, word)
        for batch in batches
        for word in ("", *WORDS)
        for r in results
        if r["batch"] == batch and column("bslite", word) in r["seconds"]
    ]
    return style.bars_of_batches(
        {**data, "results": shown}, TICKS, floor, lambda r: str(r["net"]), {r["threads"] for r in results},
        "Time of one inference, relative to bslite: above 1, bslite is faster",
        f"the network's arithmetic at the rate of {_rate(results)}, or weights, input and output "
        f"once at the speed of memory{_left_out(shown)}",
    )  # fmt: skip


def column(rival: str, word: str) -> str:
    """The name of a rival's column."""
    return f"{rival}-{word}" if word else rival


def _panel(result: dict[str, Any], word: str) -> dict[str, Any]:
    """A result's times in one precision, by the names of rivals; the floor is float32's."""
    like = "bfloat16" if word == "bfloat16" else ""
    found = {
        name.removesuffix(f"-{_word(name)}"): seconds
        for name, seconds in result["seconds"].items()
        if _word(name) == (word if name.startswith("bslite") else like)
    }
    if not word:
        return {**result, "seconds": found}
    title = f"{result['batch']}, {word}"
    return {**result, "batch": title, "seconds": found, "floor": None, "fma_floor": None}


def _word(name: str) -> str:
    """The precision that a column's name ends in, empty for float32."""
    return next((word for word in WORDS if name.endswith(f"-{word}")), "")


def _left_out(shown: Sequence[dict[str, Any]]) -> str:
    names = dict.fromkeys(name for r in shown for name in r["seconds"] if name not in style.COLOURS)
    return f".\nNot drawn: {', '.join(names)}" if names else ""


def _rate(results: Sequence[dict[str, Any]]) -> str:
    """Whose rate `floor` takes."""
    ours = any(r.get("fma_floor") for r in results)
    return "bslite's microkernel alone, out of L1 cache" if ours else "SGEMM"


def floor(result: dict[str, Any]) -> float | None:
    """Seconds the network takes at least, at the rate of our microkernel, where that was measured."""
    found = result.get("fma_floor") or result.get("floor")
    return None if found is None else float(found)
