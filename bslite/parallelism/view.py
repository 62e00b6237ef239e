"""An `Advice` as text."""

from collections.abc import Sequence

from bslite.parallelism.price import Estimate
from bslite.parallelism.result import Found, Row


def text(advice: Found) -> str:
    """The width, what each rule says, the table of settings, the choice and the lines to paste."""
    a, choice = advice, advice.choice
    where = "of this machine" if a.host.here else "that are not here"
    head = ["batch", "streams x threads", "said by", *_columns(a.rows)]
    rows = [_row(row, row.setting == choice, head[3:]) for row in a.rows]
    lines = [
        f"{a.model}: {a.target} on {a.cores} core(s) {where}",
        f"average width {a.width.average:.2f}: {a.width.heavy} heavy operators, {a.width.chain} of them in "
        "the longest chain",
        *(f"  {r.name}: {r.streams} run(s) of {r.threads} thread(s); {r.why}" for r in a.rules),
        "",
        *_table(head, rows),
        "",
        f"choice: {choice}; {a.why}",
        "",
        *paste(advice),
    ]
    return "\n".join(lines)


def paste(advice: Found) -> list[str]:
    """Lines that set the choice."""
    c = advice.choice
    lines = [f"model = bslite.compile(model, threads={c.threads}, streams={c.streams})"]
    if c.streams > 1:
        lines.append(
            f"for made in model.map(batches_of_{c.batch}): ...  # or call it from {c.streams} threads"
        )
        lines.append(f"bslite serve MODEL --threads {c.threads} --streams {c.streams}  # on the command line")
    return lines


def _columns(rows: Sequence[Row]) -> list[str]:
    kinds = [k for k in ("measured", "simulated", "priced") if any(getattr(row, k) for row in rows)]
    return [f"{what}, {unit}" for what in kinds for unit in ("ms", "images/s")]


def _row(row: Row, chosen: bool, columns: Sequence[str]) -> list[str]:
    s = row.setting
    cells = [f"{'> ' if chosen else ''}{s.batch}", f"{s.streams} x {s.threads}", ", ".join(row.rules)]
    for column in columns:
        kind, unit = column.split(", ")
        estimate: Estimate | None = getattr(row, kind)
        if estimate is None:
            cells.append("-")
        else:
            cells.append(f"{1e3 * estimate.seconds:.2f}" if unit == "ms" else f"{estimate.rate:,.1f}")
    return cells


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return ["  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in (head, *rows)]
