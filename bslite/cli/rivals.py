"""What `demo` and `bench` time: the engine, the same kernels layer by layer, and torch where installed."""

import importlib.util
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from bslite.cli.peer import model as torch_peer
from bslite.cli.progress import activity, notes
from bslite.errors import UnsupportedError
from bslite.spec import Array, ModelSpec
from bslite.spec.open import OpenModel

ENGINE, LAYERWISE, TORCH = "bslite", "bslite, layer by layer", "torch eager, channels_last"
ONNXRUNTIME = "onnxruntime"


def torch_rival(spec: ModelSpec, threads: int | None) -> torch_peer.TorchModel | None:
    """The model in torch, or None (with a word why, where torch is installed)."""
    if not torch_peer.present():
        return None
    with activity("Loading torch"):
        try:
            return torch_peer.TorchModel(spec, threads)
        except UnsupportedError as e:
            notes.print(f"without torch: {e}")
            return None


def calls(
    spec: ModelSpec | OpenModel,
    inputs: list[Array],
    threads: int | None,
    torch_model: Callable[..., Any] | None,
) -> dict[str, Callable[[], object]]:
    """Name -> one inference."""
    from bslite.api import run

    rivals: dict[str, Callable[[], object]] = {}
    if isinstance(spec, ModelSpec):
        rivals[LAYERWISE] = lambda: run(spec, inputs, layerwise=True, threads=threads)
    rivals[ENGINE] = lambda: run(spec, inputs, threads=threads)
    if torch_model is not None:
        import torch

        tensors = [torch.from_numpy(x) for x in inputs]
        rivals[TORCH] = lambda: torch_model(*tensors)
    return rivals


def onnxruntime_rival(
    path: Path | None, model: ModelSpec | OpenModel, inputs: list[Array], threads: int | None
) -> dict[str, Callable[[], object]]:
    """onnxruntime with an ONNX file, if it is installed and takes the file."""
    if path is None or not isinstance(model, OpenModel) or importlib.util.find_spec("onnxruntime") is None:
        return {}
    try:
        call = onnxruntime_call(path, model, inputs, threads)
        call()
    except Exception as e:
        notes.print(f"without onnxruntime: {e}", markup=False)
        return {}
    return {ONNXRUNTIME: call}


def onnxruntime_call(
    path: Path, model: ModelSpec | OpenModel, inputs: list[Array], threads: int | None
) -> Callable[[], Sequence[Any]]:
    """onnxruntime with an ONNX file that has the inputs of ``model``; raises what onnxruntime raises."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if threads is not None:
        options.intra_op_num_threads = threads
    names: list[str] = [i.name for i in tuple[Any, ...](model.inputs)]
    feeds = dict(zip(names, inputs, strict=True))
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feeds)


def time_table(seconds: Mapping[str, list[float]]) -> Table:
    """Medians over the rounds, spread, and each one's time as a multiple of the engine's."""
    engine = statistics.median(seconds[ENGINE])
    table = Table(box=None, padding=(0, 2))
    table.add_column("")
    for title in ("median", "fastest", "slowest", "vs bslite"):
        table.add_column(title, justify="right")
    for name, each in seconds.items():
        median = statistics.median(each)
        figures = (f"{1e3 * s:.1f} ms" for s in (median, min(each), max(each)))
        table.add_row(name, *figures, f"{median / engine:.2f} x")
    return table
