"""Copies of modules, also of those whose objects say how they are pickled."""

import copy
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from bslite.frontends.common.lazy import load_torch
from bslite.frontends.torch.tracing.reach import HEAP, held, within

if TYPE_CHECKING:
    import torch


def deep_copy(module: "torch.nn.Module", memo: dict[int, Any]) -> "torch.nn.Module":
    """``copy.deepcopy(module, memo)``, but objects with tensors or modules that say how they are pickled are
    copied attribute by attribute: what they make of themselves (Keras writes a file and reads it) has new
    tensors, whatever ``memo`` says. Where the module or a layer is such an object, others that say so, or
    that a deep copy may not get through, are copied in that way, too.
    """
    reached, layer = list(within(module)), load_torch().nn.Module
    if any(_pickles_itself(type(m)) for m in module.modules()):
        memo.update({id(x): x for x in reached if issubclass(type(x), ModuleType)})
        found = [x for x in reached if _misleads(type(x))]
    else:
        found = [x for x in reached if _pickles_itself(type(x))]
        found = [x for x in found if issubclass(type(x), layer) or any(True for _ in held([x]))]
    by_attributes = [x for x in found if _is_plain(type(x)) and id(x) not in memo]
    memo.update({id(x): object.__new__(type(x)) for x in by_attributes})
    for x in by_attributes:
        vars(memo[id(x)]).update(copy.deepcopy(vars(x), memo))
    made: torch.nn.Module = copy.deepcopy(module, memo)
    return made


def flat_copy(module: "torch.nn.Module") -> "torch.nn.Module":
    """``copy.copy(module)``; of one that says how it is pickled, the same class with the same attributes."""
    made: torch.nn.Module
    if not _pickles_itself(type(module)):
        made = copy.copy(module)
        return made
    made = object.__new__(type(module))
    vars(made).update(vars(module))
    return made


def _pickles_itself(cls: type) -> bool:
    reduces = (cls.__reduce__, cls.__reduce_ex__)
    return any(isinstance(r, FunctionType) for r in reduces) and not hasattr(cls, "__deepcopy__")


def _misleads(cls: type) -> bool:
    """Whether a deep copy may do something else than copy the attributes, or fail: it asks the new object,
    which has none yet, for a method, and a ``__getattr__`` may ask in turn.
    """
    asks = isinstance(getattr(cls, "__getattr__", None), FunctionType)
    own = hasattr(cls, "__setstate__") or hasattr(cls, "__deepcopy__")
    return _pickles_itself(cls) or (asks and not own)


def _is_plain(cls: type) -> bool:
    """Whether attributes are all that an object has."""
    kinds = [kind for kind in cls.__mro__ if kind is not object]
    return all(kind.__flags__ & HEAP and not vars(kind).get("__slots__") for kind in kinds)
