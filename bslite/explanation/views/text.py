"""An explanation as aligned plain text."""

from collections.abc import Container, Sequence

from bslite.explanation.data.gpu import GpuRow
from bslite.explanation.data.result import Result
from bslite.explanation.data.rows import Row
from bslite.spec.table import ruled

HEADER = (
    "layer", "op", "kernel", "output", "tile", "items", "MFLOP", "MB", "µs", "share", "wait", "GFLOP/s",
    "GB/s", "roofline", "bound by",
)  # fmt: skip
WORDS = (0, 1, 2, 3, 14)  # columns of words, to the left; the others are numbers
WIDEST = 44  # characters of a layer's name


def table(e: Result) -> str:
    """The whole text: the run, a line per layer, totals, then what each layer holds and why it ends there."""
    cells = [HEADER, *map(cells_of, e.rows)]
    flops, moved = sum(r.flops for r in e.layers), sum(r.bytes + r.weights for r in e.layers)
    seconds = sum(r.seconds for r in e.timed)
    wait = sum(r.wait for r in e.timed)
    cells.append(
        (
            "total", "", "", "", "", "", f"{flops / 1e6:,.2f}", f"{moved / 1e6:,.2f}",
            f"{seconds * 1e6:,.0f}", "100.0%", percent(wait / seconds if seconds else 0),
            f"{flops / seconds / 1e9:,.1f}", f"{moved / seconds / 1e9:,.1f}", percent(e.floor / seconds), "",
        )
    )  # fmt: skip
    note = "(layers inside a stack: its time, divided as when run once more by one thread)"
    return framed(_headline(e), cells, WORDS, note if any(r.inside for r in e.rows) else "", e.rows)


def framed(
    headline: list[str],
    cells: Sequence[Sequence[str]],
    words: Container[int],
    note: str,
    rows: Sequence[Row | GpuRow],
) -> str:
    """A table under its headline, its first and its last line set apart; below it, a reason for each row."""
    notes = [note] if note else []
    return "\n".join([*headline, "", *ruled(cells, words), *notes, "", *_reasons(rows)])


def _headline(e: Result) -> list[str]:
    """The run and the machine in a few lines."""
    p, limits = e.profile, e.limits
    takes = " ".join(str(list(s)) for s in e.shapes)
    rates = ", ".join(f"{name} {rate / 1e9:,.0f} GB/s" for name, rate in limits.bandwidth.items())
    idle = sum(idle for _, idle in p.walkers()) / max(p.threads * p.wall, 1e-12)
    floor = f"floor {e.floor * 1e3:.2f} ms" if e.floor else "nothing to compute"
    early = (
        "the run is faster than its floor: other programs ran while the machine's limits were measured; "
        "measure again when it is quiet"
    )
    twice = (
        "each run is done again by float32 multiply-adds, after this plan: a number among its values has no "
        "exact parts of bfloat16 (NaN, infinite, tiny); precision 'ieee' gives the same bits at once"
    )
    return [
        f"{e.model}, input {takes}, {p.threads} thread(s): {p.untraced * 1e3:.2f} ms a run, {floor}; "
        f"traced {p.wall * 1e3:.2f} ms, medians of {p.runs} runs; threads idle {percent(idle)}",
        f"machine: {limits.flops / 1e9:,.0f} GFLOP/s; {rates}",
        f"memory: {', '.join(f'{name} {size / 1e6:,.2f} MB' for name, size in e.memory.totals.items())}",
        *([early] if e.floor > p.untraced else []),
        *([twice] if p.repeated else []),
    ]


def cells_of(r: Row, widest: int | None = WIDEST) -> tuple[str, ...]:
    """One line of the table; names longer than ``widest`` characters lose their middle."""
    name = ("  " if r.inside else "") + r.name
    name = name if widest is None else shortened(name, widest)
    shape = "x".join(map(str, r.shape))
    cost = (f"{r.flops / 1e6:,.2f}", f"{(r.bytes + r.weights) / 1e6:,.2f}")
    start = (name, r.op, kernels(r), shape, r.tile, str(r.items or ""), *cost)
    if not r.seconds:
        return (*start, *[""] * 7)
    return (
        *start, f"{r.seconds * 1e6:,.0f}", percent(r.share), percent(r.wait / r.seconds),
        f"{r.gflops:,.1f}" if r.flops else "", f"{r.gbytes:,.1f}", percent(r.roofline), r.bound,
    )  # fmt: skip


def shortened(name: str, widest: int = WIDEST) -> str:
    """A name longer than ``widest`` characters without its middle."""
    if len(name) <= widest:
        return name
    return name[: widest // 2 - 2] + "..." + name[-(widest - widest // 2 - 1) :]


def kernels(r: Row) -> str:
    """The kernels of a row, each once, in order."""
    return "+".join(dict.fromkeys(r.kernels)) or "none"


def _reasons(rows: Sequence[Row | GpuRow]) -> list[str]:
    """What each layer holds, and why the next is not in it."""
    lines = ["What each layer holds, and why it ends there:"]
    width = min(WIDEST, max((len(r.name) for r in rows), default=0))
    for r in rows:
        held = "; ".join(r.holds)
        why = " | ".join(part for part in (held, r.apart) if part)
        lines.append(f"  {r.name:<{width}}  {why}")
    return lines


def percent(share: float) -> str:
    """A share as a percentage with one digit behind the point."""
    return f"{100 * share:.1f}%"
