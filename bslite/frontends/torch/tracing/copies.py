"""Copies of modules, also of those whose objects say how they are pickled."""

import copy
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from bslite.frontends.torch.tracing.loose import within

if TYPE_CHECKING:
    import torch

HEAP = 1 << 9  # flag of a class that Python code made


def deep_copy(module: "torch.nn.Module", memo: dict[int, Any]) -> "torch.nn.Module":
    """``copy.deepcopy(module, memo)``. Where a module says how it is pickled, what it reaches is copied
    attribute by attribute if it must be: what such an object makes of itself (Keras writes a file and reads
    it) has new tensors, whatever ``memo`` says, and may not work under another class.
    """
    if any(_pickles_itself(type(m)) for m in module.modules()):
        reached = list(within(module))
        memo.update({id(x): x for x in reached if isinstance(x, ModuleType)})
        by_attributes = [x for x in reached if _is_plain(type(x)) and _misleads(type(x))]
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
