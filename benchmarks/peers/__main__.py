"""``python -m benchmarks.peers``: compare bslite with the other engines on this machine."""

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks import output, roofline
from benchmarks.peers import report
from benchmarks.peers.columns import DEFAULT, RIVALS, WORDS, column, columns
from benchmarks.peers.libraries import UNSEEN, name_of
from benchmarks.peers.measure import apart, compare
from benchmarks.peers.nets import NETS, TRANSFORMERS
from bslite.engines.cpu.unit import trusted
from bslite.kernels.cpu.vector.target import has_tiles


def main(arguments: list[str] | None = None) -> int:
    """Run the comparison; exit code 1 if bslite has no time, or a wrong answer, on some network in one of the
    precisions, or if its reference is wrong.
    """
    options = _options(arguments)
    engines = columns(options.peers, options.precision)
    run = output.Run("peers", options, report.as_dict, report.markdown)
    if has_tiles() and not trusted():
        run.note("this machine has a unit for tiles of bfloat16 (AMX), which is not used: see `bslite info`")
    run.note("measuring what the machine can do")
    run.limits = roofline.measure(options.threads)
    nets = [name for net in options.nets for name in (UNSEEN if net == "unseen" else [net])]
    for batch in options.batch:
        for net in nets:
            with tempfile.TemporaryDirectory(prefix="bslite-peers-") as folder:
                how = options.threads, engines, options.rounds, options.seed, Path(folder)
                compared = apart if options.apart else compare
                run.add(compared(net, batch, *how, run.note, options.memory))
    run.note("measuring once more what the machine can do")
    run.limits = run.limits.best(roofline.measure(options.threads))
    run.finish()
    wanted = {column("bslite", word) for word in options.precision if "bslite" in options.peers}
    return int(any(not wanted <= r.seconds.keys() or "reference" in r.failures for r in run.results))


def _net(text: str) -> str:
    """A network's name. For argparse."""
    return text if text in (*NETS, *TRANSFORMERS, "unseen") else name_of(text)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument(
        "--nets", nargs="+", type=_net, default=NETS, metavar="NET",
        help=f"{', '.join((*NETS, *TRANSFORMERS))} (default: all but the last two), or of another library: "
        "timm:NAME, torchvision:NAME, transformers:NAME; unseen: a list of these that nobody has tuned",
    )  # fmt: skip
    parser.add_argument(
        "--apart", action="store_true", help="each network in a process of its own, which may die"
    )
    parser.add_argument("--batch", nargs="+", type=int, default=[1], help="batch sizes (default: 1)")
    parser.add_argument("--threads", type=int, default=2, help="threads of every engine (default: 2)")
    parser.add_argument("--rounds", type=int, default=10, help="rounds of turns (default: 10)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and input")
    output.choice(parser, "--peers", RIVALS, [name for name in RIVALS if name != "bslite-layerwise"])
    parser.add_argument(
        "--precision", nargs="+", default=[DEFAULT], choices=WORDS, metavar="WORD",
        help=f"of bslite's products, a column each, beside peers of the same: {', '.join(WORDS)} "
        f"(default: {DEFAULT})",
    )  # fmt: skip
    parser.add_argument(
        "--memory", action="store_true", help="also measure each engine's memory, in a process of its own"
    )
    output.add_options(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
