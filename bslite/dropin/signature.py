"""The kind of a call: the structure of its nested arguments, as a key, and the tensors among them."""

from collections.abc import Callable
from typing import Any

import torch

Tensor = torch.Tensor
Key = tuple[Any, ...]
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_TENSORS = (Tensor, torch.nn.Parameter)


class Unsignable(Exception):
    """An argument cannot be part of a key; the message names it."""


def signature(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Key, list[Tensor]]:
    """A key that two calls share only if the same program serves both, and the tensors in order."""
    tensors: list[Tensor] = []
    key = tuple([_exact(a, tensors) for a in args])
    if kwargs:
        return (key, tuple([(k, _exact(v, tensors)) for k, v in kwargs.items()])), tensors
    return key, tensors


def _exact(value: Any, tensors: list[Tensor]) -> Key:
    if type(value) in _TENSORS:
        tensors.append(value)
        if value.layout is not torch.strided:
            return value.layout, value.shape, value.dtype
        return value.shape, value.stride(), value.dtype, value.device, value.is_neg()
    return _nested(value, lambda x: _exact(x, tensors), tensors)


def kind(args: tuple[Any, ...], kwargs: dict[str, Any], free_batch: bool) -> Key:
    """A coarser key, which calls share if one export serves them. With ``free_batch`` the size of the batch
    counts only in so far as it is 1 or not.
    """
    batch: list[int] = []

    def read(value: Any) -> Key:
        if isinstance(value, Tensor):
            shape = tuple(value.shape)
            if free_batch and shape:
                if not batch:
                    batch.append(shape[0])
                if shape[0] == batch[0] != 1:
                    return "batch", shape[1:], value.dtype, value.device
            return "tensor", shape, value.dtype, value.device
        return _nested(value, read, [])

    return (
        "free" if free_batch else "fixed",
        tuple(map(read, args)),
        tuple((k, read(v)) for k, v in kwargs.items()),
    )


def _nested(value: Any, read: Callable[[Any], Key], tensors: list[Tensor]) -> Key:
    cls = type(value)
    if cls in _PLAIN:
        return cls, value
    if cls is torch.nn.utils.rnn.PackedSequence:
        raise Unsignable("an argument is a PackedSequence; pack and pad inside the module")
    if cls in (list, tuple) or (isinstance(value, tuple) and hasattr(value, "_fields")):
        return cls, *map(read, value)
    if cls is dict:
        return cls, *((k, read(v)) for k, v in value.items())
    if isinstance(value, Tensor):  # a subclass: FakeTensor, DTensor, ...
        tensors.append(value)
        return (cls,)
    if isinstance(value, (torch.dtype, torch.device, torch.memory_format)):
        return cls, value
    raise Unsignable(f"an argument is a {cls.__name__}")
