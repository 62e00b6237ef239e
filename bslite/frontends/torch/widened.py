"""Parameters of 16 bits as the float32 arrays of models."""

import weakref
from typing import TYPE_CHECKING, Any

from bslite.frontends.common.lazy import load_torch
from bslite.spec import Array

if TYPE_CHECKING:
    import torch

SAMPLES = 64  # numbers by which a parameter is found
#: Shape, strides and some numbers of a parameter -> what was made of it, while a model holds that.
_made: "weakref.WeakValueDictionary[Any, Array]" = weakref.WeakValueDictionary()


def widened(tensor: "torch.Tensor") -> Array:
    """The numbers of a tensor of bfloat16 or float16 as float32, in memory in the same order.

    Models that hold the same numbers hold the same array: engines share what they pack of it, and the array's
    bytes are there once, also where each trace casts a parameter anew (autocast). It is compared each time.
    """
    torch = load_torch()
    words = tensor.view(torch.int16)
    line = words.as_strided((tensor.numel(),), (1,))  # it fills a piece of memory
    sampled = tuple(line[:: max(1, tensor.numel() // SAMPLES)][:SAMPLES].tolist())
    key = tensor.shape, tensor.stride(), tensor.dtype, sampled
    found = _made.get(key)
    if found is not None and torch.equal(_bits(torch.from_numpy(found)), _bits(tensor.float())):
        return found
    _made[key] = made = tensor.float().numpy()
    return made


def _bits(numbers: "torch.Tensor") -> "torch.Tensor":
    """Numbers of 32 bits as integers: a NaN is not equal to itself."""
    return numbers.view(load_torch().int32)
