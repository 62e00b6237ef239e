"""A plan for a GPU as aligned plain text."""

from bslite.explanation.data.gpu import GpuResult, GpuRow
from bslite.explanation.views.text import aligned, percent, reasons, shortened

HEADER = (
    "layer", "op", "kernel", "output", "tile", "blocks", "threads", "MFLOP", "MB", "µs", "share", "bound by",
    "library",
)  # fmt: skip
WORDS = (0, 1, 2, 3, 11, 12)  # columns of words, to the left; the others are numbers


def table(e: GpuResult) -> str:
    """The whole text: the machine, a line per launch, totals, then what each layer holds and why it ends."""
    cells = [HEADER, *(_cells(r, e.seconds) for r in e.rows)]
    flops, moved = sum(r.flops for r in e.launches), sum(r.bytes for r in e.launches)
    total = ("total", "", f"{len(e.launches)} launches", "", "", "", "", f"{flops / 1e6:,.2f}")
    cells.append((*total, f"{moved / 1e6:,.2f}", f"{e.seconds * 1e6:,.1f}", "100.0%", "", ""))
    lines = aligned(cells, WORDS)
    rule = "-" * max(map(len, lines))
    return "\n".join(
        [*_headline(e), "", lines[0], rule, *lines[1:-1], rule, lines[-1], *_notes(e), "", *reasons(e.rows)]
    )


def _headline(e: GpuResult) -> list[str]:
    m = e.machine
    takes = " ".join(str(list(s)) for s in e.shapes)
    return [
        f"{e.model}, input {takes}: {len(e.launches)} launches, {e.seconds * 1e6:,.0f} µs by price; nothing "
        "was run or measured",
        f"planned for {e.device}: {m.sms} SMs, {2e-9 * m.sms * m.lanes * m.clock:,.0f} GFLOP/s; "
        f"L2 {m.l2_bytes / 1e6:,.0f} MB, {m.l2_bandwidth / 1e9:,.0f} GB/s; "
        f"memory {m.memory_bandwidth / 1e9:,.0f} GB/s; {m.launch * 1e6:.1f} µs a launch",
        f"memory: {', '.join(f'{name} {size / 1e6:,.2f} MB' for name, size in e.memory.items())}",
    ]


def _notes(e: GpuResult) -> list[str]:
    if any(r.library.startswith("or ") for r in e.rows):
        return ["(or ...: torch's, if it is faster when both are measured, on the device's first run)"]
    return []


def _cells(r: GpuRow, whole: float) -> tuple[str, ...]:
    name, shape = shortened(("  " if r.inside else "") + r.name), "x".join(map(str, r.shape))
    flops = f"{r.flops / 1e6:,.2f}"
    if not r.kernel:
        return (name, r.op, "" if r.inside else "none", shape, "", "", "", flops, *[""] * 5)
    return (
        name, r.op, r.kernel, shape, r.tile, "x".join(map(str, r.grid)), "x".join(map(str, r.block)), flops,
        f"{r.bytes / 1e6:,.2f}", f"{r.seconds * 1e6:,.1f}", percent(r.seconds / whole), r.bound, r.library,
    )  # fmt: skip
