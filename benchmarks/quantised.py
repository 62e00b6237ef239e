"""Quantised networks: bslite and onnxruntime on one thread, call by call in turns, by the process's CPU time.

``python -m benchmarks.quantised`` quantises torchvision's ResNet-50 with seeded weights by onnxruntime's own
tools, statically in several forms. Where the processor has no VNNI, onnxruntime multiplies unsigned by signed
bytes in 16 bits, which saturates; bslite's sums are exact in every form.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import bslite
from benchmarks import output, rivals
from benchmarks.peers import nets
from benchmarks.tables import median_ratio, ms, ratio, table
from bslite.spec import Array

#: Form -> how operators are written, dtypes of activations and weights, a scale for each channel.
FORMS = {
    "QDQ, u8 by s8": ("QDQ", "QUInt8", "QInt8", True),
    "QOperator, u8 by u8": ("QOperator", "QUInt8", "QUInt8", False),
    "QDQ, s8 by s8": ("QDQ", "QInt8", "QInt8", False),
}
SIDE = 224


def export(path: Path) -> None:
    """ResNet-50 with seeded weights, as an ONNX file."""
    import torch

    module = nets.module("resnet50", 0)
    x = torch.randn(1, 3, SIDE, SIDE)
    torch.onnx.export(module, (x,), str(path), dynamo=False, input_names=["x"], opset_version=17)


class Images:
    """Calibration data."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.rest = [rng.standard_normal((1, 3, SIDE, SIDE)).astype(np.float32) for _ in range(4)]

    def get_next(self) -> dict[str, Array] | None:
        """The next input by name, None after the last."""
        return {"x": self.rest.pop()} if self.rest else None


def quantised(source: Path, form: str, path: Path) -> None:
    """The model in one of the `FORMS`."""
    from onnxruntime import quantization as q

    how, activations, weights, per_channel = FORMS[form]
    q.quantize_static(
        source, path, Images(), quant_format=q.QuantFormat[how], activation_type=q.QuantType[activations],
        weight_type=q.QuantType[weights], per_channel=per_channel,
    )  # fmt: skip


def cpu_seconds(call: Callable[[], Any]) -> float:
    """CPU time of a call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def compared(path: Path, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of bslite and of onnxruntime, one for each round."""
    session = rivals.onnxruntime_session(str(path), 1)
    spec = bslite.from_onnx(path)
    x = np.random.default_rng(1).standard_normal((1, 3, SIDE, SIDE)).astype(np.float32)

    def ours() -> Any:
        return bslite.run(spec, x, threads=1)

    def theirs() -> Any:
        return session.run(None, {"x": x})

    ours()
    theirs()
    times = [(cpu_seconds(ours), cpu_seconds(theirs)) for _ in range(rounds)]
    return [a for a, _ in times], [b for _, b in times]


@dataclass(frozen=True)
class Result:
    """Medians in seconds of CPU time, and of the ratios round by round."""

    form: str
    ours: float
    theirs: float
    ratio: float


def markdown(results: Sequence[Result], limits: None, header: dict[str, Any]) -> str:
    """A row for each form."""
    rows = [[r.form, ms(r.ours), ms(r.theirs), ratio(r.ratio)] for r in results]
    found = table(["ResNet-50", "bslite, ms", "onnxruntime, ms", "ratio"], rows)
    return output.document(found, output.where(header, "one thread each"))


def main(arguments: list[str] | None = None) -> int:
    """Measure all forms and print a table."""
    parser = output.parser("quantised", __doc__)
    parser.add_argument("--rounds", type=int, default=25)
    output.add_options(parser, plot=False)
    options = parser.parse_args(arguments)
    run = output.Run("quantised", options, output.as_dict, markdown)
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "source.onnx"), Path(folder, "made.onnx")
        export(source)
        for form in FORMS:
            quantised(source, form, made)
            ours, theirs = compared(made, options.rounds)
            each = median_ratio(theirs, ours)
            run.add(Result(form, statistics.median(ours), statistics.median(theirs), each), form)
    run.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
