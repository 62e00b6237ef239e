"""The device of a call, whether bslite has an engine for it, and the ops that this engine has kernels for."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from bslite.ops.pointwise import IDENTITIES

Tensor = torch.Tensor
KNOWN = ("cpu", "cuda")


def of(tensor: Tensor) -> torch.device:
    """The device a tensor is on; tests put another in this place, for machines without a GPU."""
    return tensor.device


def on_gpu(tensor: Tensor) -> bool:
    """Whether the GPU engine takes the tensor."""
    return of(tensor).type == "cuda"


def wrong(tensors: Iterable[Tensor], held: Iterable[Tensor]) -> str:
    """Why a call with ``tensors``, of a module that holds ``held``, cannot run in bslite; empty if it can."""
    given = {of(t) for t in tensors}
    places = given | {of(t) for t in held}
    if len(places) > 1:
        names = " and ".join(sorted(map(str, places)))
        return f"inputs and parameters are on several devices: {names}"
    if next(iter(given)).type != "cuda":
        return ""
    from bslite.engines.cuda.devices import why_none

    return why_none(next(iter(given)).index or 0)


def capturing(tensors: Iterable[Tensor]) -> bool:
    """Whether work on these tensors goes into a CUDA graph that the caller captures: it can then be neither
    measured nor waited for.
    """
    return (
        any(map(on_gpu, tensors))
        and torch.cuda.is_available()
        and bool(torch.cuda.is_current_stream_capturing())
    )


def ops_of(tensors: Iterable[Tensor]) -> frozenset[str] | None:
    """The ops that the engine for these tensors has kernels for, or writes as others before it plans; None if
    that is all of them.
    """
    if not any(map(on_gpu, tensors)):
        return None
    from bslite.plan.core.lowering import CUDA

    return frozenset(CUDA) | {*IDENTITIES, "complex_mul"}


def wait(tensors: Iterable[Tensor]) -> None:
    """Wait until all work on the GPUs of the tensors is done."""
    for device in {t.device for t in tensors if t.is_cuda}:
        torch.cuda.synchronize(device)


def as_tensor(value: Any) -> Any:
    """``value``, as a torch tensor if it is an array."""
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value
