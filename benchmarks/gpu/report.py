"""The measurements as data and as tables."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.gpu.case import BLOCKS
from benchmarks.gpu.engines import ENGINES
from benchmarks.gpu.limits import Limits
from benchmarks.gpu.measure import Result
from benchmarks.origin import code_line
from benchmarks.output import document, failed
from benchmarks.tables import geometric_mean, ms, ratio, share, table

PARTS = {
    "networks": "Networks",
    "stacks": "Stacks of pool, batch norm and ReLU",
    "recurrent": "DeepBench's recurrent layers",
    "autotuned": 'Networks against `torch.compile(mode="max-autotune")`',
}
#: What each part must reach: (against which rivals, the geometric mean, no case under).
GOALS = {
    "networks": (("torch",), 1.36, None),
    "autotuned": (("max-autotune",), None, 1.0),
    "recurrent": (("torch", "torch-graph"), None, 1.0),
}
STACKS_GOAL = 0.8  # of the copy's bandwidth


def as_dict(results: Sequence[Result], limits: Limits, header: dict[str, Any]) -> dict[str, Any]:
    """Everything, ready for JSON."""
    found = [{**asdict(r), "best_peer": r.best_peer, "share": of_limits(r, limits)} for r in results]
    return {**header, "limits": asdict(limits), "results": found}


def of_limits(result: Result, limits: Limits) -> float | None:
    """The floor's part of bslite's time."""
    ours = result.seconds.get("bslite-graph", result.seconds.get("bslite"))
    return (result.copies or limits.floor(result.flops, result.bytes)) / ours if ours else None


def markdown(results: Sequence[Result], limits: Limits, header: dict[str, Any]) -> str:
    """A table for each part, the goals, what failed, what was measured and on what."""
    rehearsal = "**A rehearsal on the CPU: it shows that all runs, and no time here means anything.**"
    device = header["device"]
    return document(
        *(_table(part, [r for r in results if r.part == part], limits) for part in PARTS),
        rehearsal if header["options"].get("rehearse") else "\n".join(goals(results, limits)),
        failed(
            results, lambda r: f"{PARTS[r.part]}: {r.name}, batch {r.batch}", *header.get("left_out", ()),
            what="failed or was left out",
        ),
        "ms: medians of interleaved rounds, by CUDA events; TF32 off for all. `torch / bslite`: median of "
        "each round's ratio, above 1 bslite is faster. `share`: of bslite's time (in a graph, if captured) "
        "that its arithmetic takes at the rate of SGEMM, or its weights, input and output at the speed of a "
        f"copy; of stacks: that copying the image takes, once for every {BLOCKS} blocks.",
        f"{device['name']} (CUDA {device.get('cuda')}, cuDNN {device.get('cudnn')}): SGEMM "
        f"{limits.sgemm / 1e12:.1f} TFLOP/s, copy {limits.copy / 1e9:.0f} GB/s. {code_line(header)}",
    )  # fmt: skip


def _table(part: str, results: Sequence[Result], limits: Limits) -> str:
    if not results:
        return ""
    engines = [e for e in ENGINES if any(e in r.seconds for r in results)]
    peers = [e for e in engines if not ENGINES[e].ours]
    against = {e: _against(e) for e in peers}
    head = [
        "",
        "batch",
        *engines,
        *(f"{e} / {a}" for e, a in against.items()),
        "share",
        "error / bound",
        "same bits",
    ]
    rows = []
    for r in results:
        error = r.errors.get("bslite")
        row = [r.name, str(r.batch), *(ms(r.seconds.get(e), 3) for e in engines)]
        row += [ratio(r.ratio_to(e, a)) for e, a in against.items()]
        row += [share(of_limits(r, limits)), "-" if error is None or not r.bound else ratio(error / r.bound)]
        rows.append([*row, {True: "yes", False: "NO", None: "-"}[r.same_bits]])
    means = [ratio(geometric_mean([r.ratio_to(e, a) for r in results])) for e, a in against.items()]
    rows.append(["geometric mean", "", *[""] * len(engines), *means])
    return f"**{PARTS[part]}**\n\n{table(head, rows)}"


def _against(rival: str) -> str:
    """Which of ours is called as this rival is."""
    found: str = getattr(ENGINES[rival], "against", "bslite")
    return found


def goals(results: Sequence[Result], limits: Limits) -> list[str]:
    """A line for each goal: what was to be reached, and what was."""
    lines = []
    for part, (rivals, mean, least) in GOALS.items():
        for rival in rivals:
            ours = _against(rival)
            found = [x for r in results if r.part == part and (x := r.ratio_to(rival, ours)) is not None]
            if not found:
                lines.append(f"- {PARTS[part]}: not measured against {rival}.")
                continue
            got = geometric_mean(found)
            assert got is not None
            wanted = [f"mean at least {mean}"] * (mean is not None)
            wanted += [f"none under {least}"] * (least is not None)
            good = (mean is None or got >= mean) and (least is None or min(found) >= least)
            lines.append(
                f"- {PARTS[part]}, {rival} / {ours}: mean {got:.2f}, worst {min(found):.2f} of {len(found)}"
                f" ({', '.join(wanted)}): {'met' if good else 'NOT met'}."
            )
    shares = [x for r in results if r.part == "stacks" and (x := of_limits(r, limits)) is not None]
    if shares:
        met = "met" if min(shares) >= STACKS_GOAL else "NOT met"
        lines.append(f"- {PARTS['stacks']}: {min(shares):.0%} to {max(shares):.0%} of the copy's bandwidth"
                     f" (at least {STACKS_GOAL:.0%}): {met}.")  # fmt: skip
    wrong = [r for r in results if "bslite" not in r.seconds]
    changed = sum(r.same_bits is False for r in results)
    right = len(results) - len(wrong)
    lines.append(
        f"- Answers: {right} of {len(results)} cases right and timed; {changed} whose bits changed from call "
        "to call."
    )
    return lines
