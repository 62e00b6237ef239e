"""``python -m benchmarks.depth_first``: bslite depth-first against the same kernels layer by layer.

For every network, number of threads and batch size: both answers must be right and of the same bits; then the
two take turns; then the memory that each keeps between layers is taken from its plan and measured.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks import output
from benchmarks.depth_first import report
from benchmarks.depth_first.measure import MODES, Result, compare
from benchmarks.peers.nets import NETS, make
from benchmarks.tables import megabytes, ms, ratio

CHECKED = 2  # images compared with float64; all others by being the same bits both ways


def main(arguments: list[str] | None = None) -> int:
    """Run the comparison; exit code 1 if an answer is wrong."""
    options = _options(arguments)
    run = output.Run("depth_first", options, report.as_dict, report.markdown)
    for name in options.nets:
        with tempfile.TemporaryDirectory(prefix="bslite-depth-first-") as folder:
            run.note(f"{name}: making the model and the float64 answer")
            net = make(name, max(options.batch), options.seed, Path(folder), CHECKED)
            model = Path(folder, f"{name}.safetensors")
            net.spec.save(model)
            for threads in options.threads:
                for batch in options.batch:
                    found = compare(net, model, batch, threads, options.rounds, options.memory)
                    run.add(found, f"{name}, {threads} thread(s), batch {batch}: {_summary(found)}")
    run.finish()
    return int(any("answers" in r.failures for r in run.results))


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.depth_first", description=__doc__)
    output.choice(parser, "--nets", NETS)
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 2, 4, 8, 16, 32, 64], help="batch sizes")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2], help="numbers of threads")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of turns (default: 7)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and input")
    parser.add_argument(
        "--no-memory", dest="memory", action="store_false", help="measure no memory: planned figures only"
    )
    output.add_options(parser)
    return parser.parse_args(arguments)


def _summary(found: Result) -> str:
    if "answers" in found.failures:
        return found.failures["answers"]
    each = (f"{mode} {ms(found.seconds[mode], 2)} ms {megabytes(found.planned[mode])} MB" for mode in MODES)
    return f"{', '.join(each)}, ratio {ratio(found.ratio)}"


if __name__ == "__main__":
    sys.exit(main())
