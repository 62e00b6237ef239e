"""``python -m benchmarks.stand_in``: how long networks would take on a unit for tiles of bfloat16 that this
processor does not have.

In the place of each of the unit's instructions stand ordinary ones that take as long, by a probe of such a
unit (decision 030): 16 cycles for a product, one after the other; 16 loads or stores of 64 bytes for those of
a tile. Nothing is multiplied: sums are zeros, and answers are not looked at (where zeros make NaN, as in
ResNeSt, a run is done again by multiply-adds). All else runs as it will: splits, epilogues, memory, threads.
So the times show what that costs beside the unit, and which layers lose. They are a model's, of a processor
with this one's caches and clock, and no measurement of any unit.
"""

import argparse
import dataclasses
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.blocks import in_blocks
from benchmarks.tables import geometric_mean, ms, ratio, table
from bslite.spec import Array, ModelSpec

CYCLES = 16.0  # of a product of tiles
WORDS = ("ieee", "float32", "bfloat16_3x", "bfloat16")
#: A square root takes 14 to 15 cycles after the one before, on a Zen 5; it and an "or" 16 together.
PRODUCT = "vsqrtps %zmm31, %zmm31; vpord %zmm31, %zmm31, %zmm31"


def options(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stand_in", description=__doc__)
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


def install() -> None:
    """Puts ordinary instructions in the place of the unit's, and plans for a machine that has it."""
    from llvmlite import binding

    from bslite.engines.cpu import engine
    from bslite.kernels.cpu.tiles import unit
    from bslite.kernels.cpu.vector.simd import LANES
    from bslite.kernels.cpu.vector.target import X86

    if not X86 or LANES != 16:
        sys.exit("the stand-in is made of AVX-512's instructions, which this processor does not have")
    binding.initialize_native_asmparser()
    stand_ins: dict[str, Any] = {
        "zero_ir": lambda *_: None,
        "load_ir": _load,
        "product_ir": lambda builder, *_: _assembly(builder, PRODUCT, "~{xmm31}"),
        "store_ir": _store,
    }
    for name, emit in stand_ins.items():
        setattr(unit, name, emit)
    described = engine.detect
    engine.detect = lambda threads: dataclasses.replace(described(threads), tile_cycles=CYCLES)


def _load(builder: Any, _unit: Any, _tile: int, address: Any, stride: Any) -> None:
    rows = _rows("vmovups {}, %zmm29")
    _assembly(builder, rows, "{r8},{r9},~{r10},~{r11},~{xmm29},~{memory}", address, stride)


def _store(builder: Any, _unit: Any, _tile: int, address: Any, stride: Any) -> None:
    # Zeros that are there only when the products are.
    made = "vpxord %zmm30, %zmm30, %zmm30; vpandd %zmm30, %zmm31, %zmm30; "
    rows = made + _rows("vmovups %zmm30, {}")
    _assembly(builder, rows, "{r8},{r9},~{r10},~{r11},~{xmm30},~{memory}", address, stride)


def _rows(move: str) -> str:
    """``move`` for the 16 rows of a tile at r8, r9 bytes apart."""
    four = "; ".join(map(move.format, ("(%r10)", "(%r10,%r9)", "(%r10,%r9,2)", "(%r10,%r11)")))
    start = "leaq (%r9,%r9,2), %r11; movq %r8, %r10; "
    return start + "; leaq (%r10,%r9,4), %r10; ".join([four] * 4)


def _assembly(builder: Any, text: str, constraints: str, *args: Any) -> None:
    from llvmlite import ir

    kind = ir.FunctionType(ir.VoidType(), [a.type for a in args])
    builder.asm(kind, text, constraints, args, side_effect=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints."""
    given = options(argv)
    with tempfile.TemporaryDirectory() as folder:  # kernels with another unit are nobody else's
        os.environ["BSLITE_CACHE_DIR"] = folder
        install()
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
    print(f"Milliseconds by the stand-in, batch {given.batch}, {given.threads} thread(s){of}\n")
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
