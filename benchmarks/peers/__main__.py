"""``python -m benchmarks.peers``: compare bslite with the other engines on this machine."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import roofline
from benchmarks.peers import report
from benchmarks.peers.engines import ENGINES
from benchmarks.peers.measure import Result, compare
from benchmarks.peers.nets import NETS


def main() -> int:
    """Run the comparison; exit code 1 if bslite has no time, or a wrong answer, on some network."""
    options = _options()
    start = time.perf_counter()

    def note(text: str) -> None:
        print(f"[{time.perf_counter() - start:6.1f} s] {text}", file=sys.stderr, flush=True)

    note("measuring what the machine can do")
    machine = roofline.measure(options.threads)
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="bslite-peers-") as folder:
        for batch in options.batch:
            for net in options.nets:
                results.append(
                    compare(
                        net, batch, options.threads, options.peers, options.rounds, options.seed,
                        Path(folder), note,
                    )
                )  # fmt: skip
                if options.json:  # after each network: a run takes long, and what is measured is not lost
                    _write_json(options, results, machine)
    note("measuring once more what the machine can do")
    machine = machine.best(roofline.measure(options.threads))
    text = report.markdown(results, machine)
    if options.json:
        _write_json(options, results, machine)
    if options.md:
        options.md.write_text(text)
    print(text)
    return int("bslite" in options.peers and any("bslite" not in r.seconds for r in results))


def _options() -> argparse.Namespace:
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
    parser.add_argument("--json", type=Path, help="write everything measured here")
    parser.add_argument("--md", type=Path, help="write the tables here")
    return parser.parse_args()


def _write_json(options: argparse.Namespace, results: list[Result], machine: roofline.Roofline) -> None:
    plain = {key: value for key, value in vars(options).items() if not isinstance(value, Path)}
    options.json.write_text(json.dumps(report.as_dict(results, machine, plain), indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
