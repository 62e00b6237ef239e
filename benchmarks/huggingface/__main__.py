"""Models of transformers and timm through `bslite.optimize`, beside torch eager:
``python -m benchmarks.huggingface``.

Weights are random, sizes those of small published models; nothing is downloaded. For every model: whether it
is right (against torch in float64, as everywhere), what runs in bslite, seconds of the first call and of the
first of another size, and torch's time divided by bslite's, of wall time in blocks. The exit code is 1 if an
answer is wrong.
"""

import sys

import bslite
from benchmarks import output
from benchmarks.huggingface import report
from benchmarks.huggingface.measure import Result, examine
from benchmarks.huggingface.models import NAMES, made


def main(arguments: list[str] | None = None) -> int:
    """Examine every model whose library is installed."""
    parser = output.parser("huggingface", __doc__)
    parser.add_argument("--models", nargs="+", choices=NAMES, default=NAMES, metavar="NAME")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--length", type=int, default=128, help="tokens of a text")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    output.add_options(parser, plot=False)
    options = parser.parse_args(arguments)
    import torch

    torch.set_num_threads(options.threads)
    bslite.warmup(threads=options.threads)
    run = output.Run("huggingface", options, report.as_dict, report.markdown, limits=options.threads)
    for name in options.models:
        try:
            net = made(name)
        except (ImportError, RuntimeError) as e:
            if isinstance(e, RuntimeError) and "torchvision" not in str(e):  # else: one of another torch
                raise
            run.add(Result(name, failures={"left out": str(e)}), f"{name}: left out: {e}")
            continue
        result = examine(name, net, options.batch, options.length, options.threads, options.rounds)
        said = "right" if result.right else "WRONG"
        run.add(result, f"{name}: {said}, {result.ratio:.2f} times as fast as torch")
    run.finish()
    return int(any(not r.right for r in run.results))


if __name__ == "__main__":
    sys.exit(main())
