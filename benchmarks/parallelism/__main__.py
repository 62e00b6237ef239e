"""``python -m benchmarks.parallelism``: threads, streams and batch by rules, by the tuner, by trying all.

``measured``: every setting of the cores there are, in blocks in random order, answers compared bit by bit;
and the simulator beside it, which is its validation (with 16 cores at hand: ``--parts measured --cores 16``).
``simulated``: the same for cores that are not here, of one-thread times. Networks that the file of ``--json``
has already are not measured again, so that a run can be cut into pieces.
"""

import argparse
import json
import sys

from benchmarks import output
from benchmarks.parallelism import report
from benchmarks.parallelism.measure import (
    Prepared,
    Result,
    Works,
    measured_here,
    prepare,
    simulated,
    threads_needed,
    works,
)
from benchmarks.parallelism.nets import NETS
from bslite.engines.cpu.threads import available_cores
from bslite.errors import BsliteError
from bslite.parallelism.api import host_for

SIMULATED = (4, 16, 48)
BATCHES = (1, 4)


def main(arguments: list[str] | None = None) -> int:
    """Run the comparison; exit code 1 if answers differ."""
    options = _options(arguments)
    run = output.Run("parallelism", options, report.as_dict, report.markdown)
    here = available_cores()
    run.limits = []  # of the validation
    if options.json and options.json.exists():
        kept = json.loads(options.json.read_text())
        run.results = [Result(**r) for r in kept["results"]]
        run.limits = [report.checked(c) for c in kept["checked"]]
    for part in options.parts:
        cores = [here] if part == "measured" else list(options.cores or SIMULATED)
        if part == "measured" and options.cores:
            cores = [n for n in options.cores if n <= here]
        for name in options.nets:
            done = {(r.net, r.kind, r.cores) for r in run.results}
            left = [n for n in cores if (name, part, n) not in done]
            if not left:
                continue
            run.note(f"{name}, {part}: making the model")
            net = prepare(name, NETS[name](options.seed), options.batch or BATCHES)
            found = {} if part == "measured" else works(net, threads_needed(net, left), run.note)
            for n in left:
                _one(run, options, net, found, part, n)
    run.finish()
    return int(any(r.failures for r in run.results))


def _one(
    run: output.Run, options: argparse.Namespace, net: Prepared, found: Works, part: str, cores: int
) -> None:
    """One network on so many cores."""
    if part == "measured":
        host = host_for(cores, cores)
        try:
            made, checked = measured_here(net, cores, options.seconds, options.rounds, host)
        except BsliteError as e:
            run.add(
                Result(net.name, "latency", cores, part, net.width.average, {}, {}, "", {"answers": str(e)})
            )
            return
        run.limits += checked
        worst = max(checked, key=lambda c: abs(c.error))
        run.note(f"{net.name}: simulator off by at most {100 * worst.error:+.1f} % ({report.setting(worst)})")
    else:
        made = simulated(net, found, cores)
    for result in made:
        over = ", ".join(f"{who} {result.over_best(who):.3f}" for who in result.chosen)
        run.add(result, f"{net.name}, {cores} cores, {part}, {result.target}: over the best: {over}")


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parallelism", description=__doc__)
    output.choice(parser, "--nets", NETS)
    output.choice(parser, "--parts", ("measured", "simulated"))
    parser.add_argument(
        "--cores", nargs="+", type=int, help="numbers of cores; measured: those that are here"
    )
    parser.add_argument("--batch", nargs="+", type=int, help="batch sizes (default: 1 4)")
    parser.add_argument("--seconds", type=float, default=0.1, help="of a block (default: 0.1)")
    parser.add_argument("--rounds", type=int, default=6, help="blocks of a setting (default: 6)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and input")
    output.add_options(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
