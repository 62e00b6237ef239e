"""``python -m benchmarks.deepbench``: DeepBench's recurrent layers, served; bslite and the other engines."""

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks import output, roofline
from benchmarks.deepbench import report, sync
from benchmarks.deepbench.engines import ENGINES
from benchmarks.deepbench.layer import each_layer
from benchmarks.deepbench.measure import compare
from benchmarks.deepbench.points import Point, add_options, parse
from benchmarks.tables import ms, ratio
from bslite.explore.deepbench import BATCHES

CAP, ROUNDS = 50, 7
QUICK_CAP, QUICK_ROUNDS = 10, 2


def main(arguments: list[str] | None = None) -> int:
    """Run the comparison; exit code 1 if bslite has no time, or a wrong answer, on some point."""
    options, points = _options(arguments)
    run = output.Run("deepbench", options, report.as_dict, report.markdown)
    run.note("measuring multiply-adds and the synchronisation of time steps")
    fma = roofline.fma_rate(options.threads)
    barrier = sync.measure(options.rounds + 2) if options.threads > 1 else None
    for layer in each_layer(points, options, run.note):
        point = layer.point
        for batch in options.batch:
            with tempfile.TemporaryDirectory(prefix="bslite-deepbench-") as folder:
                found = compare(
                    layer, batch, options.threads, options.peers, options.rounds, Path(folder), run.note
                )
            fma = max(fma, roofline.fma_rate(options.threads))  # what disturbs it only ever lowers it
            run.limits = report.Limits(fma, barrier)
            each = ", ".join(f"{name} {ms(s, 2)}" for name, s in found.seconds.items())
            run.add(found, f"{point.name} batch {batch}: {each} ms; best / bslite {ratio(found.ratio)}")
        del layer
    run.finish()
    return int("bslite" in options.peers and any("bslite" not in r.seconds for r in run.results))


def _options(arguments: list[str] | None) -> tuple[argparse.Namespace, list[Point]]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.deepbench", description=__doc__)
    capped = f"time steps that longer sequences are cut to, but for layers of up to 2 MB (default: {CAP})"
    add_options(parser, BATCHES, capped)
    parser.add_argument("--threads", type=int, default=2, help="threads of every engine (default: 2)")
    parser.add_argument("--rounds", type=int, help=f"rounds of turns (default: {ROUNDS})")
    output.choice(parser, "--peers", ENGINES)
    parser.add_argument(
        "--quick", action="store_true",
        help=f"{QUICK_CAP} steps and {QUICK_ROUNDS} rounds: shows that all runs, measures little",
    )  # fmt: skip
    options, points = parse(parser, arguments, QUICK_CAP, CAP)
    options.rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    return options, points


if __name__ == "__main__":
    sys.exit(main())
