"""``python -m benchmarks.precisions``: bslite's precisions against ``ieee``, in turns, as a whole and layer
by layer: which arithmetic this machine is fast in, and which layers gain by it or lose.
"""

import argparse
import dataclasses
import statistics
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.blocks import in_blocks
from benchmarks.tables import geometric_mean, ms, ratio, table
from bslite.spec import Array, ModelSpec

WORDS = ("ieee", "float32", "bfloat16_3x", "bfloat16")


def options(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.precisions", description=__doc__)
    parser.add_argument("--nets", nargs="+", default=["resnet50", "mobilenet_v2"], metavar="NET")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", nargs="+", default=["float32"], choices=WORDS[1:], metavar="WORD")
    parser.add_argument(
        "--weights", choices=("bfloat16", "float16"), help="round weights to these 16 bits first"
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="of a block")
    parser.add_argument("--layers", action="store_true", help="also layer by layer")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints."""
    given = options(argv)
    with tempfile.TemporaryDirectory() as folder:
        return _measure(given, Path(folder))


def _measure(given: argparse.Namespace, folder: Path) -> int:
    import bslite
    from benchmarks.peers.nets import make

    words, rows = ["ieee", *given.precision], []
    ratios: dict[str, list[float | None]] = {word: [] for word in given.precision}
    for name in given.nets:
        net = make(name, given.batch, 0, folder)
        spec = _rounded(net.spec, given.weights) if given.weights else net.spec
        calls = {
            word: partial(bslite.run, spec, net.x, threads=given.threads, precision=word) for word in words
        }
        found = in_blocks(calls, given.rounds, given.seconds)
        took = {word: statistics.median(times) for word, times in found.items()}
        for word in given.precision:
            ratios[word].append(took["ieee"] / took[word])
        rows.append([name, *(ms(took[w], 2) for w in words), *(ratio(ratios[w][-1]) for w in ratios)])
        if given.layers:
            print(f"{name}\n\n{_layers(spec, net.x, given)}\n", flush=True)
    rows.append(["geometric mean", *[""] * len(words), *(ratio(geometric_mean(r)) for r in ratios.values())])
    head = ["net", *words, *(f"ieee / {word}" for word in ratios)]
    of = f", weights of {given.weights}" if given.weights else ""
    print(f"Milliseconds, batch {given.batch}, {given.threads} thread(s){of}\n")
    print(table(head, rows))
    return 0


def _rounded(spec: ModelSpec, word: str) -> ModelSpec:
    """The model with weights that fit 16 bits."""
    import torch

    floats = {key: torch.tensor(a) for key, a in spec.params.items() if a.dtype == np.float32}
    fitting = {key: a.to(getattr(torch, word)).float().numpy() for key, a in floats.items()}
    return dataclasses.replace(spec, params={**spec.params, **fitting})


def _layers(spec: ModelSpec, x: Array, given: argparse.Namespace) -> str:
    """What each layer takes; ``kernels`` are those of the last precision."""
    import bslite

    words = ["ieee", *given.precision]
    made = {word: bslite.explain(spec, x, threads=given.threads, precision=word).layers for word in words}
    rows = []
    for layers in zip(*(made[word] for word in words), strict=True):
        if layers[0].flops:
            times = [1e6 * layer.seconds for layer in layers]
            rows.append([layers[0].name, "+".join(layers[-1].kernels), *(f"{t:.0f}" for t in times)])
    return table(["layer", "kernels", *(f"{word}, us" for word in words)], rows, left=2)


if __name__ == "__main__":
    sys.exit(main())
