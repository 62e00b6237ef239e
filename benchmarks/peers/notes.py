"""What is said below the tables: what the figures mean, and which arithmetic there really was."""

from collections.abc import Sequence

from benchmarks.peers import arithmetic
from benchmarks.peers.columns import AGAINST, COLUMNS, DEFAULT
from benchmarks.peers.measure import Result

ROUNDED = 1e-4  # errors of answers in bfloat16 are larger


def notes(results: Sequence[Result], words: Sequence[str]) -> str:
    """Of one batch size; ``words``: the precisions of bslite."""
    return "\n\n".join(
        filter(None, (_figures(results, words), _arithmetic(results, words), _not_rounded(results)))
    )


def _figures(results: Sequence[Result], words: Sequence[str]) -> str:
    images = sorted({r.reference_images for r in results if 0 < r.reference_images < r.batch})
    of = f", of the first {images[-1]} images of the batch" if images else ""
    said = (
        "`best / bslite` above 1: bslite is faster than the best of the others. `error`: relative L2 from"
        f" bslite's reference in float64{of}. `floor`: what arithmetic at the rate of SGEMM, or weights,"
        " input and output at the speed of memory, take at least; `share`: of bslite's time"
    )
    said += "." if words == [DEFAULT] else " in float32."
    held = [f"`{word}`" for word in words if word != DEFAULT and AGAINST[word] == DEFAULT]
    return f"{said} {' and '.join(held)}: held against the peers in float32." if held else said


def _arithmetic(results: Sequence[Result], words: Sequence[str]) -> str:
    """Which columns of bslite have products of bfloat16; nothing of float32 alone where none has."""
    found = {how for r in results for how in r.arithmetic.values()}
    if found <= {arithmetic.NONE}:
        return (
            "bslite's plans have no products of bfloat16 here: its columns are the same arithmetic, "
            "float32 multiply-adds, whatever the precision."
            if words != [DEFAULT] and found
            else ""
        )
    lines = []
    for name in dict.fromkeys(name for r in results for name in r.arithmetic):
        by = {how: [r.net for r in results if r.arithmetic.get(name) == how] for how in sorted(found)}
        lines.append(f"`{name}`: " + "; ".join(f"{how} ({', '.join(n)})" for how, n in by.items() if n))
    return "Arithmetic of bslite's columns:\n\n" + "\n".join(f"- {line}" for line in lines)


def _not_rounded(results: Sequence[Result]) -> str:
    """The peers in bfloat16 whose answers say that they were not."""
    names = [
        name
        for name, e in COLUMNS.items()
        if e.precision == "bfloat16" and not e.ours
        and any(r.reference_errors.get(name, ROUNDED) < ROUNDED for r in results)
    ]  # fmt: skip
    each = ", ".join(f"`{name}`" for name in names)
    return each and f"Told to take bfloat16, but with errors of float32, so they did not: {each}."
