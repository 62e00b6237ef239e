"""Linear layers with weights of 4 and 8 bits (MatMulNBits, blocks of 32): bslite and onnxruntime.

``python -m benchmarks.few_bits`` runs a chain of layers of 2,048 and 4,096 features for 1 to 128 rows.
onnxruntime runs it at accuracy level 0 (float32) and 4, at which it rounds the rows to 8 bits, too: errors
stand beside times.
"""

import argparse
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import bslite
from benchmarks import output, rivals
from benchmarks.blocks import SECONDS, in_blocks
from benchmarks.peers.nets import distance
from benchmarks.tables import ms, ratio, table
from bslite.spec import Array

ROWS = (1, 2, 4, 8, 32, 128)
BITS = (4, 8)
BLOCK = 32
PEERS = {"onnxruntime": 0, "onnxruntime, rows of 8 bits": 4}  # name -> its accuracy level
SIZES = (2048, 4096)


def chain(layers: int, bits: int, level: int = 0) -> Any:
    """The model: layers from one of `SIZES` to the other and back."""
    from onnx import TensorProto, helper, numpy_helper

    rng, nodes, arrays = np.random.default_rng(0), [], {}
    for n in range(layers):
        c, k = SIZES[n % 2], SIZES[1 - n % 2]
        arrays[f"w{n}"] = rng.integers(0, 256, (k, c // BLOCK, BLOCK * bits // 8), np.uint8)
        scales = rng.uniform(0.5, 1.5, (k, c // BLOCK)) / (2**bits * np.sqrt(c) / 4)
        arrays[f"s{n}"] = scales.astype(np.float32)
        how: Any = {"K": c, "N": k, "bits": bits, "block_size": BLOCK, "accuracy_level": level}
        names = [f"y{n - 1}" if n else "x", f"w{n}", f"s{n}"]
        nodes.append(helper.make_node("MatMulNBits", names, [f"y{n}"], domain="com.microsoft", **how))
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", size])
        for name, size in (("x", SIZES[0]), (f"y{layers - 1}", SIZES[layers % 2]))
    ]
    held = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], held)
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=9)


@dataclass(frozen=True)
class Result:
    """Seconds and relative L2 errors by engine."""

    bits: int
    rows: int
    seconds: Mapping[str, float]
    errors: Mapping[str, float]


def session(model: Any, threads: int) -> Callable[[Array], Array]:
    """onnxruntime's run of a model."""
    made = rivals.onnxruntime_session(model.SerializeToString(), threads)
    return lambda x: made.run(None, {"x": x})[0]


def compared(bits: int, rows: Sequence[int], options: argparse.Namespace) -> list[Result]:
    """A result for each number of rows."""
    spec = bslite.from_onnx(chain(options.layers, bits))
    engines: dict[str, Callable[[Array], Any]] = {
        "bslite": lambda x: bslite.run(spec, x, threads=options.threads)
    }
    for name, level in PEERS.items():
        engines[name] = session(chain(options.layers, bits, level), options.threads)
    found = []
    for count in rows:
        x = np.random.default_rng(1).standard_normal((count, SIZES[0]), np.float32)
        exact = bslite.run(spec, x, backend="reference64")
        errors = {name: distance(run(x), exact) for name, run in engines.items()}
        times = in_blocks(
            {name: partial(run, x) for name, run in engines.items()}, options.rounds, options.seconds
        )
        seconds = {name: statistics.median(taken) for name, taken in times.items()}
        found.append(Result(bits, count, seconds, errors))
    return found


def markdown(results: Sequence[Result], limits: None, header: dict[str, Any]) -> str:
    """A row for each number of bits and of rows."""
    rows = []
    for r in results:
        cells = [f"{ms(r.seconds[name], 2)} / {r.errors[name]:.0e}" for name in ("bslite", *PEERS)]
        each = [ratio(r.seconds[name] / r.seconds["bslite"]) for name in PEERS]
        rows.append([str(r.bits), str(r.rows), *cells, *each])
    head = ["bits", "rows", "bslite", *PEERS, *(f"{name} / bslite" for name in PEERS)]
    layers = header["options"]["layers"]
    text = f"**{layers} layers of 2,048 and 4,096 features; ms / error, medians of blocks in random order**"
    return output.document(
        f"{text}\n\n{table(head, rows)}", output.where(header, f"{header['options']['threads']} thread(s)")
    )


def main(arguments: list[str] | None = None) -> int:
    """Measure and print a table."""
    parser = output.parser("few_bits", __doc__)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2 * SECONDS, help="of a block")
    output.add_options(parser, plot=False)
    options = parser.parse_args(arguments)
    run = output.Run("few_bits", options, output.as_dict, markdown)
    for bits in BITS:
        for result in compared(bits, ROWS, options):
            run.add(result, f"{bits} bits, {result.rows} rows")
    run.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
