"""Tensors of a module that are neither parameters nor buffers: in plain attributes, say, or global."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from types import CellType, FunctionType
from typing import TYPE_CHECKING, Any

from bslite.frontends.common.lazy import load_torch

if TYPE_CHECKING:
    import torch

DEPTH = 3  # containers in containers that are looked into


#: Kinds of containers, and how to go through one: kinds made of them may do something else, or refuse.
THROUGH = {
    dict: dict.values,
    list: list.__iter__,
    tuple: tuple.__iter__,
    set: set.__iter__,
    frozenset: frozenset.__iter__,
}


def elements(value: Any) -> list[Any]:
    """What a container holds; nothing of anything else."""
    through: Any = next((THROUGH[kind] for kind in THROUGH if isinstance(value, kind)), None)
    return list(through(value)) if through else []


def tensors_within(value: Any, depth: int = DEPTH) -> "Iterator[torch.Tensor]":
    """``value`` itself if it is a tensor, or those in a container."""
    if isinstance(value, load_torch().Tensor):
        yield value
    elif depth:
        for item in elements(value):
            yield from tensors_within(item, depth - 1)


def _reached(module: "torch.nn.Module") -> "Iterator[torch.Tensor]":
    """Tensors in attributes of a module, of those inside and of their classes, and what functions there have
    in their closures and name of their globals.
    """
    plain = load_torch().nn.Module.__mro__
    classes = {cls for m in module.modules() for cls in type(m).__mro__ if cls not in plain}
    spaces = [list(vars(owner).values()) for owner in (*module.modules(), *classes)]
    yield from itertools.chain.from_iterable(map(tensors_within, itertools.chain(*spaces)))
    for function in {value for space in spaces for value in space if isinstance(value, FunctionType)}:
        held = [cell.cell_contents for cell in function.__closure__ or () if cell != CellType()]
        named = (function.__globals__.get(name) for name in function.__code__.co_names)
        for value in (*held, *named):
            yield from tensors_within(value, 0)  # a program's containers may be large, or load what is read


@contextmanager
def unchanged(module: "torch.nn.Module") -> Iterator[None]:
    """Put back what is written meanwhile to tensors that are neither parameters nor buffers: torch's
    stand-ins for them write through, while those for parameters and buffers do not.
    """
    torch = load_torch()
    registered = {id(t) for t in (*module.parameters(), *module.buffers())}
    plain = (torch.Tensor, torch.nn.Parameter)  # others may know no copies
    loose = {id(t): t for t in _reached(module) if type(t) in plain and id(t) not in registered}
    before = [
        (t, t._version, t.detach().clone())
        for t in loose.values()
        if t.layout == torch.strided and not (t.is_meta or t.is_inference())
    ]
    try:
        yield
    finally:
        with torch.no_grad():
            for t, version, value in before:
                if t._version != version:
                    t.copy_(value)
