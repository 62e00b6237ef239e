"""``python -m benchmarks.deepbench``: DeepBench's recurrent layers, served; bslite and the other engines."""

import argparse
import gc
import sys
import tempfile
from pathlib import Path

from benchmarks import output, roofline
from benchmarks.deepbench import report, sync
from benchmarks.deepbench.engines import ENGINES
from benchmarks.deepbench.layer import Layer
from benchmarks.deepbench.measure import Found, compare
from benchmarks.deepbench.points import Point, chosen, cut_points
from benchmarks.tables import ms, ratio
from bslite.explore.deepbench import BATCHES

CAP, ROUNDS = 50, 7
QUICK_CAP, QUICK_ROUNDS = 10, 2


def main(arguments: list[str] | None = None) -> int:
    """Run the comparison; exit code 1 if bslite has no time, or a wrong answer, on some point."""
    options, points = _options(arguments)
    note = output.notes()
    header = output.header("deepbench", options)
    note("measuring multiply-adds and the synchronisation of time steps")
    fma = roofline.fma_rate(options.threads)
    barrier = sync.measure(options.rounds + 2) if options.threads > 1 else None
    results: list[Found] = []
    for point in points:
        note(f"{point.name}, {point.steps} step(s): making the layer and the float64 answer")
        layer = Layer(point, max(options.batch), options.seed)
        for batch in options.batch:
            with tempfile.TemporaryDirectory(prefix="bslite-deepbench-") as folder:
                found = compare(
                    layer, batch, options.threads, options.peers, options.rounds, Path(folder), note
                )
            results.append(found)
            each = ", ".join(f"{name} {ms(s, 2)}" for name, s in found.seconds.items())
            note(f"{point.name} batch {batch}: {each} ms; best / bslite {ratio(found.ratio)}")
            fma = max(fma, roofline.fma_rate(options.threads))  # what disturbs it only ever lowers it
            data = report.as_dict(results, fma, barrier, header)
            output.write(options, data, report.markdown(results, fma, barrier, header))
        del layer
        gc.collect()
    data = report.as_dict(results, fma, barrier, header)
    output.finish(options, data, report.markdown(results, fma, barrier, header))
    return int("bslite" in options.peers and any("bslite" not in r.seconds for r in results))


def _options(arguments: list[str] | None) -> tuple[argparse.Namespace, list[Point]]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.deepbench", description=__doc__)
    parser.add_argument("--layers", nargs="+", metavar="LAYER", help='of the list, such as "lstm 512"')
    parser.add_argument("--batch", nargs="+", type=int, default=list(BATCHES), help="(default: 1 2 4)")
    parser.add_argument(
        "--steps-cap", type=int, metavar="N",
        help=f"time steps that longer sequences are cut to, but for layers of up to 2 MB (default: {CAP})",
    )  # fmt: skip
    parser.add_argument("--threads", type=int, default=2, help="threads of every engine (default: 2)")
    parser.add_argument("--rounds", type=int, help=f"rounds of turns (default: {ROUNDS})")
    parser.add_argument("--seed", type=int, default=0, help="of weights and input")
    parser.add_argument(
        "--peers",
        nargs="+",
        default=list(ENGINES),
        choices=ENGINES,
        metavar="ENGINE",
        help=", ".join(ENGINES),
    )
    parser.add_argument(
        "--quick", action="store_true",
        help=f"{QUICK_CAP} steps and {QUICK_ROUNDS} rounds: shows that all runs, measures little",
    )  # fmt: skip
    output.add_options(parser)
    options = parser.parse_args(arguments)
    options.steps_cap = options.steps_cap or (QUICK_CAP if options.quick else CAP)
    options.rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    points = cut_points(options.steps_cap)
    try:
        return options, chosen(options.layers, points) if options.layers else points
    except ValueError as e:
        parser.error(f"--layers: {e}")


if __name__ == "__main__":
    sys.exit(main())
