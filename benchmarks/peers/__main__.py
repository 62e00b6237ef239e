"""``python -m benchmarks.peers``: compare bslite with the other engines on this machine."""

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks import output, roofline
from benchmarks.peers import report
from benchmarks.peers.engines import ENGINES
from benchmarks.peers.measure import Result, compare
from benchmarks.peers.nets import NETS


def main(arguments: list[str] | None = None) -> int:
    """Run the comparison; exit code 1 if bslite has no time, or a wrong answer, on some network."""
    options = _options(arguments)
    note = output.notes()
    header = output.header("peers", options)
    note("measuring what the machine can do")
    machine = roofline.measure(options.threads)
    results: list[Result] = []
    for batch in options.batch:
        for net in options.nets:
            with tempfile.TemporaryDirectory(prefix="bslite-peers-") as folder:
                result = compare(
                    net, batch, options.threads, options.peers, options.rounds, options.seed,
                    Path(folder), note, options.memory,
                )  # fmt: skip
            results.append(result)
            data = report.as_dict(results, machine, header)
            output.write(options, data, report.markdown(results, machine, header))
    note("measuring once more what the machine can do")
    machine = machine.best(roofline.measure(options.threads))
    data = report.as_dict(results, machine, header)
    output.finish(options, data, report.markdown(results, machine, header))
    return int("bslite" in options.peers and any("bslite" not in r.seconds for r in results))


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--nets", nargs="+", default=NETS, choices=NETS, metavar="NET", help=", ".join(NETS))
    parser.add_argument("--batch", nargs="+", type=int, default=[1], help="batch sizes (default: 1)")
    parser.add_argument("--threads", type=int, default=2, help="threads of every engine (default: 2)")
    parser.add_argument("--rounds", type=int, default=10, help="rounds of turns (default: 10)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and input")
    default = [name for name in ENGINES if name != "bslite-layerwise"]
    parser.add_argument(
        "--peers", nargs="+", default=default, choices=ENGINES, metavar="ENGINE", help=", ".join(ENGINES)
    )
    parser.add_argument(
        "--memory", action="store_true", help="also measure each engine's memory, in a process of its own"
    )
    output.add_options(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
