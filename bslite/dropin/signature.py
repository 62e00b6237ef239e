"""The kind of a call: the structure of its nested arguments, as a key, and the tensors among them."""

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from bslite.dropin import casting
from bslite.dropin.structure import Counter, lengths, opens

Tensor = torch.Tensor
Key = tuple[Any, ...]
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_TENSORS = (Tensor, torch.nn.Parameter)
_PLACE = ("a tensor",)  # where one is among the arguments


class Unsignable(Exception):
    """An argument cannot be part of a key; the message names it."""


def signature(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Key, list[Tensor], list[Any]]:
    """A key that two calls share only if the same program serves both; the tensors and objects in order. The
    key is a pair: what is not in tensors, and what is said of each of these.
    """
    tensors: list[Tensor] = []
    objects: list[Any] = []
    said: list[Key] = []

    def read(value: Any) -> Key:
        if type(value) in _TENSORS:
            tensors.append(value)
            if value.layout is not torch.strided:
                said.append((value.layout, value.shape, value.dtype))
            else:
                said.append((value.shape, value.stride(), value.dtype, value.device, value.is_neg()))
            return _PLACE
        return _nested(value, read, tensors, objects)

    key: Key = tuple([read(a) for a in args])
    if (cast := casting.noted()) is not None:
        key = cast, key
    if kwargs:
        key = key, tuple([(k, read(v)) for k, v in kwargs.items()])
    return (key, tuple(said)), tensors, objects


def kind(
    args: tuple[Any, ...], kwargs: dict[str, Any], free_batch: bool, grows: Sequence[int | None] = (),
    loose: bool = False, sizes: bool = True, counters: Collection[Counter] = (),
) -> Key:  # fmt: skip
    """A coarser key, which calls share if one export serves them. With ``free_batch`` the size of the batch
    counts only in so far as it is 1 or not. ``grows``: the axis of each tensor whose size does not count.
    ``loose``: numbers in objects do not count either, nor do ``counters``. Without ``sizes`` those above one
    do not.
    """
    batch: list[int] = []
    axes = iter(grows)

    def read(value: Any) -> Key:
        if isinstance(value, Tensor):
            shape: tuple[Any, ...] = tuple(value.shape)
            axis = next(axes, None)
            if axis is not None:
                shape = (*shape[:axis], "grows", *shape[axis + 1 :])
            if free_batch and shape and not batch:
                batch.append(shape[0])
            shared = free_batch and bool(shape) and shape[0] == batch[0] != 1
            if not sizes:
                shape = tuple("any" if type(n) is int and n > 1 else n for n in shape)
            if shared:
                return "batch", shape[1:], value.dtype, value.device
            return "tensor", shape, value.dtype, value.device
        if loose and objects and type(value) is int:
            return (int,)
        return _nested(value, read, [], objects, counters)

    objects: list[Any] = []
    return (
        "free" if free_batch else "fixed",
        casting.noted(),
        tuple(map(read, args)),
        tuple((k, read(v)) for k, v in kwargs.items()),
    )


def _nested(
    value: Any, read: Callable[[Any], Key], tensors: list[Tensor], objects: list[Any],
    counters: Collection[Counter] = (),
) -> Key:  # fmt: skip
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
    if isinstance(value, (torch.dtype, torch.device, torch.memory_format, type)):
        return cls, value
    if isinstance(value, OrderedDict) and not pytree.tree_is_leaf(value):
        return cls, *((k, read(v)) for k, v in value.items())
    if opens(value):
        for place, known in enumerate(objects):
            if known is value:
                return "again", place
        own = len(objects)
        objects.append(value)
        counts = lengths(vars(value))  # which the tensors' sizes say as well
        counts |= {name: "" for place, name in counters if place == own}
        return cls, *[(k, ("length", counts[k]) if k in counts else read(v)) for k, v in vars(value).items()]
    raise Unsignable(f"an argument is a {cls.__name__}")
