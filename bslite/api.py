"""The public calls: check what the user gave, then hand it to an engine."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from bslite.errors import EngineError, InputError
from bslite.spec import Array, Input, ModelSpec

BACKENDS = ("cpu", "cuda", "reference")
MOST_KNOWN = 64  # kinds of inputs, of one model, that are not looked at again


def run(
    spec: ModelSpec,
    x: Any,
    *,
    backend: str = "cpu",
    layerwise: bool = False,
    threads: int | None = None,
) -> Any:
    """The model's output for ``x``: an array, or a list of them if the model has several outputs.

    ``x`` is a float32 NumPy array or CPU torch tensor in the logical layout of the model's input (``[N, C,
    H, W]`` for
    images; channels_last memory is welcome), or a list or tuple of them for several inputs. Torch tensors in,
    torch tensors out.

    ``backend="cpu"`` is the fast engine, ``"reference"`` the plain NumPy oracle (float32). ``layerwise``
    runs the CPU engine's
    kernels one layer at a time, nothing fused. ``threads`` defaults to the cores this process may use.

    Raises InputError if ``x`` is not what the model takes, SpecError if a layer cannot take the size that
    reaches it,
    EngineError for a backend that does not exist or cannot run here. Nothing is ever cast.
    """
    if not isinstance(spec, ModelSpec):
        raise InputError(
            f"run() takes a ModelSpec first, got {type(spec).__name__}; "
            "make one with bslite.from_torch, from_state_dict or load"
        )
    if backend not in BACKENDS:
        raise EngineError(f"backend {backend!r} is not one of {', '.join(map(repr, BACKENDS))}")
    check_threads(threads)
    inputs, as_torch = as_arrays(spec, x)
    if backend == "reference":
        from bslite import reference

        outputs = reference.run(spec, inputs, np.float32)
    elif backend == "cuda":
        from bslite.engines import cuda

        outputs = cuda.run(spec, inputs, layerwise=layerwise)
    else:
        from bslite.engines import cpu

        outputs = cpu.run(spec, inputs, threads=threads, layerwise=layerwise)
    results = [_to_torch(y) for y in outputs] if as_torch else outputs
    return results[0] if len(results) == 1 else results


def check_threads(threads: int | None) -> None:
    """EngineError unless ``threads`` is None or a positive integer."""
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise EngineError(f"threads must be a positive integer, got {threads!r}")


def as_arrays(spec: ModelSpec, x: Any) -> tuple[list[Array], bool]:
    """The inputs as checked float32 arrays, without copying where their memory can be walked; were they
    torch's?
    """
    given = list(x) if isinstance(x, (list, tuple)) else [x]
    seen = tuple(
        (v.shape, v.strides, v.dtype, v.flags.aligned) if type(v) is np.ndarray else None for v in given
    )
    known: dict[Any, None] = spec.__dict__.setdefault("_taken_as_is", {})
    if seen in known:
        return given, False
    if len(given) != len(spec.inputs):
        raise InputError(f"model {spec.name!r} takes {len(spec.inputs)} input(s), got {len(given)}")
    torch = sys.modules.get("torch")
    as_torch = torch is not None and any(isinstance(v, torch.Tensor) for v in given)
    arrays = [_as_array(declared, v, torch) for declared, v in zip(spec.inputs, given, strict=True)]
    sizes: dict[str, int] = {}
    for declared, array in zip(spec.inputs, arrays, strict=True):
        declared.bind(array.shape, sizes)
    if (
        None not in seen
        and all(a is b for a, b in zip(arrays, given, strict=True))
        and len(known) < MOST_KNOWN
    ):
        known[seen] = None
    return arrays, as_torch


def _as_array(declared: Input, value: Any, torch: Any) -> Array:
    """One input: type and dtype checked, strides made positive and whole."""
    what = f"input {declared.name!r}"
    if torch is not None and isinstance(value, torch.Tensor):
        if value.device.type != "cpu":
            raise InputError(
                f"{what} is on {value.device}; the CPU engine takes CPU tensors, move it with .cpu()"
            )
        if value.layout != torch.strided:
            raise InputError(f"input {declared.name!r} is a {value.layout} tensor; expected a dense one")
        if str(value.dtype) != f"torch.{declared.dtype}":
            raise InputError(
                f"{what} is {value.dtype}, expected torch.{declared.dtype}; bslite does not cast"
            )
        value = value.detach().resolve_neg().numpy()
    if not isinstance(value, np.ndarray):
        raise InputError(
            f"{what} is a {type(value).__name__}; expected a numpy array or torch tensor of {declared.dtype}"
        )
    if value.dtype != np.dtype(declared.dtype):
        raise InputError(
            f"input {declared.name!r} is {value.dtype}, expected {declared.dtype}; bslite does not cast"
        )
    walkable = all(s > 0 and s % value.itemsize == 0 for s in value.strides)
    dense = (
        value.size
        and sum((n - 1) * s for n, s in zip(value.shape, value.strides, strict=True)) < 2 * value.nbytes
    )
    if not (walkable and dense and value.flags.aligned):
        value = np.ascontiguousarray(
            value
        )  # negative, zero, odd or far-apart strides: a dense copy is cheaper
    return value


def _to_torch(array: Array) -> Any:
    import torch

    return torch.from_numpy(array)
