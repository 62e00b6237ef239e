"""torch.nn's transformers as eager mode runs them, in a form that torch.export follows."""

import copy
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bslite.frontends.common.lazy import load_torch

if TYPE_CHECKING:
    import torch

_lock = threading.Lock()
_here = threading.local()  # ``depth`` of exports that this thread is in, ``fast``: see `transformers`
_exports = 0  # of all threads
_originals: dict[str, Any] = {}


@contextmanager
def transformers(module: "torch.nn.Module", fast: bool) -> Iterator[None]:
    """A context in which this thread can export ``module``.

    Eager mode asks a mask whether it is causal, to choose a kernel. Here the mask itself is used.

    In eager mode an encoder with a padding mask takes padding out and puts zeros in its place, if all padding
    is at the end. An export takes the longer way, which leaves other numbers there. Here they are made zeros.
    ``fast``: whether eager mode is allowed to (``torch.backends.mha.set_fastpath_enabled``).
    """
    nn = load_torch().nn
    if not any(isinstance(m, (nn.TransformerEncoder, nn.TransformerDecoder)) for m in module.modules()):
        yield
        return
    before, _here.fast = getattr(_here, "fast", None), fast
    _replace(1)
    try:
        yield
    finally:
        _replace(-1)
        _here.fast = before


def _replace(step: int) -> None:
    """Put functions in the places of torch's with the first export, take them away with the last."""
    global _exports
    from torch.nn.modules import transformer as place

    with _lock:
        if _exports == 0:
            _originals["forward"] = place.TransformerEncoder.forward
            _originals["detect"] = place._detect_is_causal_mask
            place.TransformerEncoder.forward = _forward  # type: ignore[method-assign]
            place._detect_is_causal_mask = _detect
        _exports += step
        if _exports == 0:
            place.TransformerEncoder.forward = _originals["forward"]  # type: ignore[method-assign]
            place._detect_is_causal_mask = _originals["detect"]


def _detect(mask: Any, is_causal: bool | None = None, size: int | None = None) -> bool:
    if getattr(_here, "fast", None) is None:
        return bool(_originals["detect"](mask, is_causal, size))
    return bool(is_causal)


def _forward(
    self: Any, src: Any, mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool | None = None
) -> Any:
    inner: Any = self
    zeroes = _zeroes(self, src, mask, src_key_padding_mask)
    if zeroes and self.norm is not None:
        inner = copy.copy(self)
        inner._modules = {**self._modules, "norm": None}
    made = _originals["forward"](inner, src, mask, src_key_padding_mask, is_causal)
    if not zeroes:
        return made
    torch = load_torch()
    valid = src_key_padding_mask.logical_not()
    if getattr(self, "mask_check", True):
        ends = torch.arange(valid.shape[1], device=valid.device) < valid.sum(1, keepdim=True)
        valid = valid | (ends == valid).all().logical_not()
    made = torch.where(valid[..., None], made, 0.0)
    return made if self.norm is None else self.norm(made)


def _zeroes(encoder: Any, src: Any, mask: Any, padding: Any) -> bool:
    """Whether eager mode would take the padding out."""
    return (
        bool(getattr(_here, "fast", None))
        and getattr(encoder, "use_nested_tensor", False)
        and not encoder.layers[0].training
        and src.dim() == 3
        and padding is not None
        and mask is None
        and not load_torch().is_autocast_enabled()
    )
