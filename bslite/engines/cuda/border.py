"""torch's CUDA tensors in and out: their memory as it is, on the stream that is current when called."""

from collections.abc import Callable, Sequence
from typing import Any

from bslite.arithmetic import Precision, current
from bslite.engines.common.cells import LEAST, MOST
from bslite.engines.cuda.engine import engine_for
from bslite.errors import IntegerRangeError
from bslite.plan.core.views import channels_last, contiguous
from bslite.plan.cuda.tuning import Tuning
from bslite.spec import ModelSpec

ALIGN = 16  # bytes: what kernels that load pairs may rely on

Tensor = Any
Call = Callable[[Sequence[Tensor]], list[Tensor]]


def run(spec: ModelSpec, tensors: Sequence[Tensor], *, layerwise: bool = False) -> list[Tensor]:
    """Outputs for CUDA tensors of one device, checked beforehand to be what the model takes.

    The outputs may not be ready yet; images have their channels last if an input does. The call waits only
    where it must look at values: 64-bit integers, and flags of models that check indices.
    """
    calls = engine_for(spec, tensors[0].device.index or 0).calls
    key = (layerwise, current(), *((t.shape, t.stride()) for t in tensors))
    return calls.get(key, lambda: prepared(spec, tensors, layerwise))(tensors)


def prepared(
    spec: ModelSpec, tensors: Sequence[Tensor], layerwise: bool = False, precision: Precision | None = None
) -> Call:
    """The function to call for tensors of these shapes and strides; ``precision`` as for a session."""
    import torch

    device = tensors[0].device
    engine = engine_for(spec, device.index or 0)
    dense = [_dense(t) for t in tensors]
    strides = [tuple(t.stride()) if d else _row_major(t.shape) for t, d in zip(tensors, dense, strict=True)]
    sizes = [tuple(t.shape) for t in tensors]
    images = any(map(channels_last, sizes, strides))  # then so are the answers, as those of torch's layers
    session = engine.session(
        sizes, strides, layerwise, channels_last=images, tuning=Tuning(precision=precision)
    )
    float32 = [i.dtype == "float32" for i in spec.inputs]
    names = [i.name for i in spec.inputs]
    dtypes = [getattr(torch, spec.dtypes[name]) for name in spec.outputs]
    forms, driver = [(view.shape, view.strides) for view in session.plan.outputs], session.driver

    def call(given: Sequence[Tensor]) -> list[Tensor]:
        kept = [
            _ready(t if f else _integers(t, name), d)
            for t, d, f, name in zip(given, dense, float32, names, strict=True)
        ]
        made = [torch.empty_strided(*form, dtype=torch.float32, device=device) for form in forms]
        session.run([t.data_ptr() for t in kept], [t.data_ptr() for t in made], driver.stream())
        return [
            y if dtype is torch.float32 else y.view(torch.int32).to(dtype)
            for y, dtype in zip(made, dtypes, strict=True)
        ]

    return call


def _dense(tensor: Tensor) -> bool:
    """Whether a tensor's elements fill more than half of their extent, each in its own place."""
    if not tensor.numel() or any(
        s == 0 and n > 1 for n, s in zip(tensor.shape, tensor.stride(), strict=True)
    ):
        return False
    reach = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return bool(reach < 2 * tensor.numel())


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    return contiguous(tuple(shape))


def _ready(tensor: Tensor, dense: bool) -> Tensor:
    """The tensor, or a copy that lies as the plan expects, on a multiple of 16 bytes."""
    tensor = tensor.detach()
    if not dense:
        tensor = tensor.contiguous()
    if tensor.data_ptr() % ALIGN or tensor.is_neg():
        return _like(tensor).copy_(tensor)
    return tensor


def _like(tensor: Tensor, dtype: Any = None) -> Tensor:
    """A new tensor with the strides of ``tensor``."""
    import torch

    dtype = dtype or tensor.dtype
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=dtype, device=tensor.device)


def _integers(tensor: Tensor, name: str) -> Tensor:
    """Integers and bools as the engine keeps them. InputError where a number does not fit 32 bits."""
    import torch

    if tensor.dtype == torch.int64 and bool(((tensor < LEAST) | (tensor > MOST)).any()):
        raise IntegerRangeError(
            f"input {name!r} holds {int(tensor.abs().max())}; bslite computes with integers of 32 bits"
        )
    return _like(tensor, torch.int32).copy_(tensor)
