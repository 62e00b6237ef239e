"""A named architecture plus its weights as a dict or a file: a model without the code that trained it."""

import os
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from bslite.errors import FileError, WeightsError
from bslite.frontends.common.recurrent import KINDS
from bslite.frontends.weights import architectures
from bslite.frontends.weights.architectures import Architecture
from bslite.frontends.weights.recurrent import in_torchs_order, recurrent_spec, sizes_of
from bslite.ops import Shape
from bslite.spec import Array, ModelSpec
from bslite.spec.tensors import Path, TensorFile


class Other(NamedTuple):
    """What an entry is that is not a float32 array. Integer counters are skipped unless wanted."""

    what: str
    integer: bool = False


Entry = Array | Other


def from_state_dict(
    arch: str, state_dict: Mapping[str, Any] | Path, *, num_classes: int | None = None,
    image_size: int | tuple[int, int] | None = None, transform_input: bool = False, batch_first: bool = False,
    initial_state: bool = False, lengths: bool = False, gates: str | None = None, prefix: str = "",
) -> ModelSpec:  # fmt: skip
    """``arch`` (see `bslite.frontends.weights.architectures.NAMES`) with weights under torchvision's
    parameter names.

    ``state_dict`` is a dict of NumPy arrays or torch tensors, or the path of a .safetensors, .pth or .pt file
    (the last two need torch and are read with ``weights_only=True``). Arrays must be float32: nothing is
    cast. Contiguous ones are shared with the caller, not copied.

    ``num_classes`` is read off the weights if None. The model takes ``[N, 3, H, W]`` with N, H and W free;
    ``image_size``, one side or (height, width), only sets the example shape. ``transform_input`` is
    torchvision's option of that name: its pretrained googlenet and inception_v3 need True.

    ``arch`` may also be a recurrent module, lstm, gru, rnn_tanh or rnn_relu, with the names of torch's
    (``weight_ih_l0``, ...) behind ``prefix``; sizes, layers, directions, biases and projections are read off
    the weights. The model takes x ``[T, N, I]`` (``[N, T, I]`` if ``batch_first``), with ``initial_state``
    also h0, of LSTMs c0, with ``lengths`` also the lengths ``[N]``; it gives y, h, of LSTMs c. T and N are
    free. ``gates``: the order of the gates in the weights' rows if it is not torch's, "ifgo" and "rzn" (ONNX:
    "iofg" and "zrn").

    Raises WeightsError listing every missing, unexpected and misshapen parameter, UnsupportedError for an
    unknown architecture, FileError for an unreadable file.
    """
    if arch in KINDS:
        if num_classes is not None or image_size is not None or transform_input:
            raise WeightsError(f"{arch} has no num_classes, image_size or transform_input")
        how = {"batch_first": batch_first, "initial_state": initial_state, "lengths": lengths}
        return _recurrent(arch, state_dict, prefix, gates, **how)
    if batch_first or initial_state or lengths or gates is not None or prefix:
        raise WeightsError(
            f"{arch} has no batch_first, initial_state, lengths, gates or prefix; {', '.join(KINDS)} have"
        )
    architecture = architectures.get(arch)
    if transform_input and not architecture.may_transform_input:
        raise WeightsError(f"{arch} has no transform_input; only GoogLeNet and Inception do")
    entries = _renamed(architecture, _entries(state_dict))
    classes = _classes(architecture, entries) if num_classes is None else num_classes
    if not isinstance(classes, int) or classes < 1:
        raise WeightsError(f"{arch}: num_classes is {classes!r}, expected a positive integer")
    image = (image_size, image_size) if isinstance(image_size, int) else image_size
    net, output = architecture.describe(classes, image, transform_input)
    return net.build(output, _bind(architecture.name, net.wanted, entries, architecture.ignored))


def _recurrent(
    kind: str, state_dict: Mapping[str, Any] | Path, prefix: str, gates: str | None, **how: bool
) -> ModelSpec:
    """A recurrent module. Entries that do not begin with ``prefix`` are left out."""
    entries = {k.removeprefix(prefix): e for k, e in _entries(state_dict).items() if k.startswith(prefix)}
    for key in ("weight_ih_l0", "weight_hh_l0"):  # the sizes are read from these
        if isinstance(other := entries.get(key), Other):
            raise WeightsError(f"the weights do not fit {kind}: {key}: got {other.what}, expected float32")
    sizes = sizes_of(kind, {key: e.shape for key, e in entries.items() if isinstance(e, np.ndarray)})
    params = _bind(kind, sizes.wanted(), entries)
    ordered = {key: in_torchs_order(kind, gates, key, array) for key, array in params.items()}
    return recurrent_spec(kind, sizes, ordered, **how)


def _bind(
    name: str, wanted: Mapping[str, Shape], entries: Mapping[str, Entry], ignored: tuple[str, ...] = ()
) -> dict[str, Array]:
    """The wanted arrays, or one WeightsError about everything that does not fit."""
    params: dict[str, Array] = {}
    missing, shapes, kinds = [], [], []
    for key, shape in wanted.items():
        entry = entries.get(key)
        if entry is None:
            missing.append(f"{key} {list(shape)}")
        elif isinstance(entry, Other):
            kinds.append(f"{key}: got {entry.what}, expected float32 {list(shape)}")
        elif entry.shape != shape:
            shapes.append(f"{key}: got {list(entry.shape)}, expected {list(shape)}")
        else:
            params[key] = np.ascontiguousarray(entry)
    unexpected = []
    for key, entry in entries.items():
        counter = isinstance(entry, Other) and entry.integer
        if key not in wanted and not counter and not key.startswith(ignored):
            unexpected.append(f"{key} {entry.what if isinstance(entry, Other) else list(entry.shape)}")
    groups = {
        "missing": missing,
        "unexpected": unexpected,
        "wrong shape": shapes,
        "wrong dtype (nothing is cast silently)": kinds,
    }
    if any(groups.values()):
        lines = [f"the weights do not fit {name}"]
        for title, items in groups.items():
            if items:
                lines += [f"  {title}: {len(items)}", *(f"    {item}" for item in items)]
        raise WeightsError("\n".join(lines))
    return params


def _renamed(architecture: Architecture, entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Old spellings of names replaced; where both spellings are there, the old one stays and is reported."""
    names = {key: architecture.rename(key) for key in entries}
    return {key if names[key] in entries else names[key]: entry for key, entry in entries.items()}


def _classes(architecture: Architecture, entries: Mapping[str, Entry]) -> int:
    """The classifier's number of outputs; 1000 if the weights do not tell, which the check then reports."""
    weight = entries.get(f"{architecture.classifier}.weight")
    return weight.shape[0] if isinstance(weight, np.ndarray) and weight.size else 1000


def _entries(state_dict: Mapping[str, Any] | Path) -> dict[str, Entry]:
    if isinstance(state_dict, (str, os.PathLike)):
        path = os.fsdecode(state_dict)
        kind = os.path.splitext(path)[1].lower()
        if kind == ".safetensors":
            return _read_safetensors(path)
        if kind not in (".pth", ".pt"):
            raise FileError(f"{path}: expected a .safetensors, .pth or .pt file")
        state_dict = _read_torch(path)
    if not isinstance(state_dict, Mapping):
        raise WeightsError(
            f"got a {type(state_dict).__name__}, expected a state_dict (name -> array) or the path of one; "
            "for a torch module pass module.state_dict()"
        )
    return {str(key): _entry(value) for key, value in state_dict.items()}


def _entry(value: Any) -> Entry:
    torch = sys.modules.get("torch")  # a torch tensor cannot exist without it, so never import it here
    if torch is not None and isinstance(value, torch.Tensor):
        if value.dtype != torch.float32:
            return Other(str(value.dtype), not (value.dtype.is_floating_point or value.dtype.is_complex))
        try:
            return np.asarray(value.detach().cpu().numpy())
        except (RuntimeError, TypeError, NotImplementedError) as e:  # sparse, meta, no storage
            return Other(f"a tensor without plain memory ({e})")
    if isinstance(value, np.ndarray):
        return value if value.dtype == np.float32 else Other(str(value.dtype), value.dtype.kind in "iub")
    return Other(f"a {type(value).__name__}")


def _read_safetensors(path: str) -> dict[str, Entry]:
    with TensorFile(path) as file:
        return {
            key: file.array(key) if dtype == "F32" else Other(dtype, dtype == "BOOL" or dtype[0] in "IU")
            for key, dtype in file.dtypes.items()
        }


def _read_torch(path: str) -> Any:
    if not os.path.isfile(path):
        raise FileError(f"{path}: no such file")
    try:
        import torch
    except ImportError:
        raise FileError(
            f"{path}: reading it needs torch (pip install torch); a .safetensors file does not"
        ) from None
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as e:  # a foreign parser on a foreign file: whatever it raises, the file is to blame
        raise FileError(f"{path}: torch cannot load it with weights_only=True ({e})") from e
