"""The other engines that are installed, with the same model and input, on as many threads."""

import importlib.util
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bslite.cli.peer import model as torch_peer
from bslite.cli.rivals import ONNXRUNTIME, onnxruntime_call
from bslite.errors import UnsupportedError
from bslite.spec import Array, ModelSpec
from bslite.spec.open import OpenModel
from bslite.verification.checks import relative_error

TORCH, OPENVINO = "torch eager", "openvino"  # images channels_last
KNOWN = {TORCH: "torch", ONNXRUNTIME: "onnxruntime", OPENVINO: "openvino"}  # name -> package
#: An answer of a peer that is further from bslite's, in relative L2 norm, is called another one.
ANOTHER = 1e-3


@dataclass
class Peer:
    """An engine that is installed: a ``call`` that makes its outputs, or ``why`` there is none.

    ``apart``: relative L2 distance of its outputs from bslite's.
    """

    name: str
    call: Callable[[], Sequence[Any]] | None = None
    why: str = ""
    apart: float | None = None
    judge: torch_peer.TorchModel | None = None  # the model in torch, whose error is a bound for ours


def installed() -> list[str]:
    """Those that are there; none is imported."""
    return [name for name, module in KNOWN.items() if importlib.util.find_spec(module) is not None]


def prepared(
    names: Sequence[str],
    path: Path | None,
    whole: tuple[ModelSpec, list[Array]] | None,
    model: ModelSpec | OpenModel,
    inputs: list[Any],
    outputs: Sequence[Any],
    threads: int,
    folder: Path,
) -> Iterator[Peer]:
    """Each of ``names`` with the model, or with the reason why not.

    ``path``: the ONNX file; where there is none, torch writes one into ``folder`` for those who read such a
    file. ``whole``: the model as one ModelSpec with its inputs, if it is one. ``outputs``: bslite's.
    """
    torch = None
    for name in names:
        peer = Peer(name)
        try:
            if name == TORCH:
                peer.judge = torch = _in_torch(whole, threads)
                peer.call = _torch_call(torch, whole[1] if whole else [])
            else:
                file = path or _written(torch, whole, folder)
                call = onnxruntime_call if name == ONNXRUNTIME else openvino_call
                peer.call = call(file, model, inputs, threads)
            peer.apart = max(map(_distance, peer.call(), outputs), default=0.0)
        except Exception as e:  # of libraries whose errors have no common kind
            peer.call, peer.why = None, _line(e)
        yield peer


def openvino_call(
    path: Path, model: ModelSpec | OpenModel, inputs: list[Any], threads: int | None
) -> Callable[[], Sequence[Any]]:
    """openvino with an ONNX file, held to float32."""
    import openvino

    settings: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    if threads is not None:
        settings["INFERENCE_NUM_THREADS"] = threads
    compiled = openvino.Core().compile_model(str(path), "CPU", settings)
    request = compiled.create_infer_request()
    return lambda: list(request.infer(inputs, share_inputs=True, share_outputs=True).values())


def _in_torch(whole: tuple[ModelSpec, list[Array]] | None, threads: int) -> torch_peer.TorchModel:
    if whole is None:
        raise UnsupportedError("the model runs in several pieces")
    return torch_peer.TorchModel(whole[0], threads)


def _torch_call(model: torch_peer.TorchModel, inputs: list[Array]) -> Callable[[], Sequence[Any]]:
    import torch

    tensors = [torch.from_numpy(x) for x in inputs]
    return lambda: model(*tensors)


def _written(
    model: torch_peer.TorchModel | None, whole: tuple[ModelSpec, list[Array]] | None, folder: Path
) -> Path:
    """The path of the model as torch's exporter writes it; once for all who ask."""
    path = folder / "model.onnx"
    if path.exists():
        return path
    if model is None or whole is None:
        raise UnsupportedError("it reads ONNX files, and there is no torch here to write one")
    import torch

    whole_model = model

    class Whole(torch.nn.Module):
        """The model as the exporter takes it."""

        def forward(self, *tensors: Any) -> Any:
            return tuple(whole_model(*tensors))

    tensors = tuple(torch.from_numpy(x) for x in whole[1])
    names = [i.name for i in whole[0].inputs]
    partial = folder / "partial.onnx"
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Whole().eval(),
            tensors,
            str(partial),
            dynamo=False,
            opset_version=17,
            input_names=names,
            do_constant_folding=False,  # it takes a second, and those who read the file fold, too
        )
    return partial.rename(path)


def _distance(made: Any, ours: Any) -> float:
    """How far an output, an array or a tensor, is from bslite's."""
    theirs = np.asarray(made)
    if not isinstance(ours, np.ndarray) or ours.dtype.kind not in "biuf" or theirs.dtype.kind not in "biuf":
        return 0.0
    return relative_error(theirs, ours)


def _line(error: Exception) -> str:
    """The first line of what was raised."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
