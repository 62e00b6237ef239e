"""Tensors of a module that are neither parameters nor buffers: in plain attributes, say, or global."""

import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import CellType, FunctionType, ModuleType
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


CONTAINERS = tuple(THROUGH)


def elements(value: Any) -> list[Any]:
    """What a container holds; nothing of anything else."""
    if isinstance(value, CONTAINERS):
        through: Any = next(THROUGH[kind] for kind in CONTAINERS if isinstance(value, kind))
        return list(through(value))
    return []


def leaves(value: Any, depth: int = DEPTH) -> list[Any]:
    """What a container and containers in it hold that is none; ``value`` itself if it is none."""
    if not isinstance(value, CONTAINERS):
        return [value]
    if not depth:
        return []
    return [leaf for item in elements(value) for leaf in leaves(item, depth - 1)]


def tensors_within(value: Any, depth: int = DEPTH) -> "list[torch.Tensor]":
    """``value`` itself if it is a tensor, or those in a container."""
    kind = load_torch().Tensor
    return [item for item in leaves(value, depth) if isinstance(item, kind)]


def modules_within(module: "torch.nn.Module") -> "list[torch.nn.Module]":
    """``module.modules()``, then those that torch does not know of, in plain containers, with their own."""
    found, kind = list(module.modules()), load_torch().nn.Module
    known = {id(m) for m in found}
    for m in found:  # which grows meanwhile
        for value in vars(m).copy().values():
            for item in leaves(value):
                if isinstance(item, kind) and id(item) not in known:
                    inside = [own for own in item.modules() if id(own) not in known]
                    known.update(map(id, inside))
                    found += inside
    return found


def within(module: "torch.nn.Module") -> Iterator[Any]:
    """The module, objects and Python modules, wherever attributes of objects and containers lead to."""
    found, seen = [module], {}
    while found:
        value = found.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value  # kept, or another might get its number
        own = _attributes(value)
        if own or isinstance(value, ModuleType):
            yield value
        found += [*own.values(), *elements(value)]


def _attributes(value: Any) -> dict[str, Any]:
    """Those of an object; none of a class, a function, a Python module, or what bslite keeps at a module."""
    kind = type(value)
    if issubclass(kind, (type, FunctionType, ModuleType)) or kind.__module__.startswith("bslite."):
        return {}
    try:
        own = vars(value)
    except Exception:  # it has none, or stands for something that is not there
        return {}
    return own if isinstance(own, dict) else {}


def held(objects: Iterable[Any]) -> "Iterator[torch.Tensor]":
    """Tensors in attributes of objects."""
    spaces = (_attributes(x).values() for x in objects)
    return itertools.chain.from_iterable(map(tensors_within, itertools.chain.from_iterable(spaces)))


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


def origins(tensors: "Iterable[torch.Tensor]", constants: Iterable[Any]) -> "list[torch.Tensor]":
    """Those of ``tensors`` whose memory constants of a trace are. The constants themselves are detached."""
    torch = load_torch()
    places = {c.data_ptr() for c in constants if isinstance(c, torch.Tensor) and c.layout == torch.strided}
    kinds = (torch.Tensor, torch.nn.Parameter)  # others may have no memory
    found = {id(t): t for t in tensors if type(t) in kinds and t.layout == torch.strided} if places else {}
    return [t for t in found.values() if t.data_ptr() in places]


@contextmanager
def unchanged(module: "torch.nn.Module") -> Iterator[None]:
    """Put back what is written meanwhile to tensors that are neither parameters nor buffers, or are held by
    other objects, too: torch's stand-ins for them write through, while those for parameters and buffers do
    not.
    """
    torch = load_torch()
    registered = {id(t) for t in (*module.parameters(), *module.buffers())}
    plain = (torch.Tensor, torch.nn.Parameter)  # others may know no copies
    # In other objects than the modules that torch knows, even those are themselves.
    known = set(map(id, module.modules()))
    found = itertools.chain(
        (t for t in _reached(module) if id(t) not in registered),
        held(x for x in within(module) if id(x) not in known),
    )
    loose = {id(t): t for t in found if type(t) in plain}
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
                if t._version != version or not torch.equal(t, value):  # norms do not count what they write
                    t.copy_(value)
