"""What can be reached from a module: through attributes, slots, closures and containers."""

import functools
from collections.abc import Iterable, Iterator
from itertools import chain
from types import CellType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from bslite.frontends.common.lazy import load_torch

if TYPE_CHECKING:
    import torch

DEPTH = 3  # containers in containers that are looked into
HEAP = 1 << 9  # flag of a class that Python code made
ATOMS = frozenset((bool, int, float, complex, str, bytes, type(None)))  # they hold nothing

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
    """What a container holds; nothing of anything else, and of what stands for one (a weak proxy)."""
    kind = type(value)
    if issubclass(kind, CONTAINERS):
        through: Any = next(THROUGH[own] for own in CONTAINERS if issubclass(kind, own))
        return list(through(value))
    return []


def leaves(value: Any, depth: int = DEPTH) -> list[Any]:
    """What a container and containers in it hold that is none; ``value`` itself if it is none."""
    if not issubclass(type(value), CONTAINERS):
        return [value]
    if not depth:
        return []
    return [leaf for item in elements(value) for leaf in leaves(item, depth - 1)]


def tensors_within(value: Any, depth: int = DEPTH) -> "list[torch.Tensor]":
    """``value`` itself if it is a tensor, or those in a container."""
    kind = load_torch().Tensor
    return [item for item in leaves(value, depth) if issubclass(type(item), kind)]


def modules_in(values: Iterable[Any], depth: int = DEPTH) -> "list[torch.nn.Module]":
    """The modules among ``values``, and in containers there."""
    kind = load_torch().nn.Module
    return [item for value in values for item in leaves(value, depth) if issubclass(type(item), kind)]


def hidden_modules(module: "torch.nn.Module") -> "list[torch.nn.Module]":
    """The modules that torch does not know of: in plain containers, with all in them; none that holds
    ``module`` itself.
    """
    inside, kind, torchs = list(module.modules()), load_torch().nn.Module, _torchs()
    known, found = set(map(id, inside)), []
    for m in inside:  # which grows meanwhile
        plain = [v for k, v in vars(m).copy().items() if k not in torchs and issubclass(type(v), CONTAINERS)]
        for value in plain:
            for item in leaves(value):
                if issubclass(type(item), kind) and id(item) not in known:
                    new = [own for own in item.modules() if id(own) not in known]
                    known.update(map(id, new))
                    if not any(own is module for own in item.modules()):
                        inside += new
                        found += new
    return found


@functools.cache
def _torchs() -> frozenset[str]:
    """The attributes that torch keeps at every module."""
    return frozenset(vars(load_torch().nn.Module()))


def within(*modules: "torch.nn.Module") -> Iterator[Any]:
    """The modules, objects, functions and Python modules, wherever attributes and containers lead to."""
    found, seen = list[Any](modules), {}
    while found:
        value = found.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value  # kept, or another might get its number
        own = _inside(value)
        if own or issubclass(type(value), ModuleType):
            yield value
        found += [x for x in (*own, *elements(value)) if type(x) not in ATOMS]


def held(objects: Iterable[Any]) -> "Iterator[torch.Tensor]":
    """Tensors that objects, not containers, hold."""
    return chain.from_iterable(tensors_within(value) for x in objects for value in _inside(x))


def _inside(value: Any) -> list[Any]:
    """What an object, a method or a function's closure holds; nothing of a class, a Python module, or what
    bslite keeps at a module.
    """
    kind = type(value)
    if issubclass(kind, (type, ModuleType)) or _is_ours(value if kind is FunctionType else kind):
        return []
    if kind is FunctionType:
        return closed(value)
    if kind is MethodType:
        return [value.__self__, value.__func__]
    if kind is functools.partial:
        return [value.func, value.args, value.keywords]
    try:
        own = list(vars(value).copy().values())
    except Exception:  # it has none, or stands for something that is not there
        own = []
    for slot in slots_of(kind):
        try:
            own.append(slot.__get__(value))
        except Exception:  # it is empty
            continue
    return own


def slots_of(kind: type) -> list[MemberDescriptorType]:
    """The slots of a class that Python code made."""
    if not kind.__flags__ & HEAP:
        return []
    return [s for c in kind.__mro__ for s in vars(c).values() if type(s) is MemberDescriptorType]


def closed(function: FunctionType) -> list[Any]:
    """What a function's closure holds."""
    return [cell.cell_contents for cell in function.__closure__ or () if cell != CellType()]


def _is_ours(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).startswith("bslite.")
