"""What forwards read besides their module and arguments: globals, closures, attributes of plain objects.

A trace holds for the values that these had: a number that is imported, a switch of a configuration. The code
of the forwards, and of the functions and methods that they name, tells what they read. Plain values and
containers of them are compared, anything else by identity. Nobody looks into code of torch, NumPy or Python.
"""

import dis
import enum
import functools
import sys
import types
from collections.abc import Iterator
from itertools import chain
from operator import is_
from typing import Any

import torch

from bslite.dropin.structure import copied

PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size, enum.Enum)
CONTAINERS = (tuple, list, set, frozenset, dict)
#: Whose own values no forward depends on: the caches of the last ones change at every new shape.
LIBRARIES = frozenset(sys.stdlib_module_names) - {"__main__"} | {"torch", "numpy", "einops", "einx"}
#: Classes of Python's own whose instances hold what a program puts there.
NAMESPACES = {("types", "SimpleNamespace"), ("argparse", "Namespace")}
ROOTS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "IMPORT_NAME")
ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM")
DEPTH = 6  # of attributes of attributes
LONG = 64  # elements of a container that is compared only by identity
ABSENT = object()


class Surroundings:
    """The values that the forwards of ``module`` and its submodules read from outside."""

    def __init__(self, module: torch.nn.Module) -> None:
        found = _Search(module)
        self._entries, self._attributes = _columns(found.entries), _columns(found.attributes)
        self.names = frozenset(found.names)  # that the code has, of globals and attributes
        self.note()

    def changed(self) -> bool:
        """Whether a value is another one than at first."""
        if not self.seen:
            return False
        try:
            if not all(map(is_, self.seen, self._values())):
                if not all(map(_alike, self.seen, self._values())):
                    return True
                self.note()  # equal ones in the places of those that were seen
            return bool(self._containers) and self._copies != self._containers
        except Exception:  # what does not compare, or cannot be read any more, is another one
            return True

    def note(self) -> None:
        """Compare with the present values from now on, which are `seen`."""
        self.seen = list(self._values())
        self._containers = [v for v in self.seen if isinstance(v, CONTAINERS) and len(v) < LONG]
        self._copies = [_copy(v) for v in self._containers]

    def _values(self) -> Iterator[Any]:
        return chain(map(dict.get, *self._entries), map(getattr, *self._attributes))


class _Search:
    """Goes through code and what it names, until nothing new is found.

    ``entries``: dicts, of globals or of an object's attributes, and keys. ``attributes``: classes, cells and
    objects with slots, and names.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.entries: dict[tuple[int, str], tuple[dict[str, Any], str]] = {}
        self.attributes: dict[tuple[int, str], tuple[Any, str]] = {}
        self.names: set[str] = set()  # of globals and attributes, in all code
        self._functions: dict[int, types.FunctionType] = {}
        self._objects: dict[int, tuple[Any, int]] = {}  # plain ones, and how deep they are
        modules = list(module.modules())
        classes = {c for m in modules for c in _own(type(m))}
        for m in modules:
            self._look(type(m).forward)
            self._look(vars(m).get("forward"))
        size = -1
        while size != (size := len(self._functions) + len(self._objects)):
            for m in modules:
                for name in vars(m).keys() & self.names:
                    self._look(vars(m)[name])
            for cls in classes:
                for name in vars(cls).keys() & self.names:
                    self._attribute(cls, name, vars(cls)[name], 0)
            for held, depth in list(self._objects.values()):
                self._object(held, depth)

    def _object(self, held: Any, depth: int) -> None:
        """Note the attributes of an object that some code names."""
        own: dict[str, Any] = getattr(held, "__dict__", {})
        for name in own.keys() & self.names:
            self._entry(own, name, own[name], depth)
        for cls in _own(type(held)):
            for name in vars(cls).keys() & self.names:
                value = vars(cls)[name]
                if isinstance(value, types.MemberDescriptorType):
                    self._attribute(held, name, getattr(held, name, ABSENT), depth)
                else:
                    self._attribute(cls, name, value, depth)
                    if _is_value(value) and name not in own and hasattr(held, "__dict__"):
                        self.entries[id(own), name] = own, name  # the object may get its own

    def _look(self, value: Any, depth: int = 0) -> None:
        """Look into what a name stands for."""
        if isinstance(value, functools.partial):
            for x in (value.func, *value.args, *value.keywords.values()):
                self._look(x, depth)
        elif isinstance(value, (types.MethodType, staticmethod, classmethod)):
            self._look(value.__func__, depth)
            self._look(getattr(value, "__self__", None), depth)
        elif isinstance(value, property):
            self._look(value.fget, depth)
        elif isinstance(value, types.FunctionType):
            if id(value) not in self._functions and not _of_library(value.__module__):
                self._functions[id(value)] = value
                self._read(value, value.__code__)
        elif depth < DEPTH and _opens(value):
            self._objects.setdefault(id(value), (value, depth))

    def _read(self, function: types.FunctionType, code: types.CodeType) -> None:
        """Note what a function's ``code`` names."""
        self.names.update(code.co_names)
        space = function.__globals__
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        for root, *names in _chains(code):
            if root in cells:
                value = self._attribute(cells[root], "cell_contents", _content(cells[root]), 0)
            elif root in space:
                value = self._entry(space, root, space[root], 0)
            else:
                value = sys.modules.get(root)
            for name in names:
                if not isinstance(value, (types.ModuleType, type)) or _of_library(_home(value)):
                    break
                if isinstance(value, type):
                    value = self._attribute(value, name, _held(value, name), 0)
                else:
                    value = self._entry(vars(value), name, vars(value).get(name, ABSENT), 0)
        for const in code.co_consts:
            if isinstance(const, types.CodeType):
                self._read(function, const)

    def _entry(self, space: dict[str, Any], name: str, value: Any, depth: int) -> Any:
        """Compare what a dict holds from now on, look into it, and return it."""
        if _is_value(value):
            self.entries[id(space), name] = space, name
        self._look(value, depth + 1)
        return value

    def _attribute(self, holder: Any, name: str, value: Any, depth: int) -> Any:
        """The same of an attribute."""
        if _is_value(value):
            self.attributes[id(holder), name] = holder, name
        self._look(value, depth + 1)
        return value


def _chains(code: types.CodeType) -> Iterator[list[str]]:
    """A name that is not local, or an imported module, and the attributes that are taken of it."""
    chain: list[str] = []
    for instruction in dis.get_instructions(code):
        if chain and instruction.opname in ATTRIBUTES:
            chain.append(instruction.argval)
        else:
            if chain:
                yield chain
            chain = [instruction.argval] if instruction.opname in ROOTS else []
    if chain:
        yield chain


def _held(cls: type, name: str) -> Any:
    """What a class holds under a name, without running what would make it."""
    return next((vars(c)[name] for c in cls.__mro__ if name in vars(c)), ABSENT)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it has none yet
        return ABSENT


def _is_value(value: Any) -> bool:
    """Whether what a name stands for is compared: not modules and classes, which programs do not exchange,
    nor what makes a value anew whenever it is asked for.
    """
    if value is ABSENT or isinstance(value, (types.ModuleType, type, types.BuiltinFunctionType)):
        return False
    return isinstance(value, types.FunctionType) or not hasattr(type(value), "__get__")


def _own(cls: type) -> list[type]:
    """A class and its bases, but for those of libraries."""
    return [c for c in cls.__mro__ if not _of_library(c.__module__)]


def _home(value: Any) -> str:
    return value.__module__ if isinstance(value, type) else value.__name__


def _of_library(module: str | None) -> bool:
    return (module or "").partition(".")[0] in LIBRARIES


def _opens(value: Any) -> bool:
    """Whether an object's attributes are what a program has put there."""
    if isinstance(value, (*PLAIN, *CONTAINERS, torch.nn.Module, torch.Tensor, types.ModuleType, type)):
        return False
    cls = type(value)
    return not _of_library(cls.__module__) or (cls.__module__, cls.__qualname__) in NAMESPACES


def _alike(seen: Any, value: Any) -> bool:
    """Whether a value stands for the one that was seen."""
    if seen is value:
        return True
    return type(seen) is type(value) and isinstance(seen, (*PLAIN, *CONTAINERS)) and bool(seen == value)


def _copy(container: Any) -> Any:
    """What a container holds, in which later changes do not show. A subclass may make something new of each
    entry that is asked for, so the plain container's own methods are asked.
    """
    if isinstance(container, dict):
        return copied(dict(dict.items(container)), 3)
    if isinstance(container, list):
        return copied(list(list.__iter__(container)), 3)
    return copied(set(set.__iter__(container)) if isinstance(container, set) else container, 3)


def _columns(places: dict[tuple[int, str], tuple[Any, str]]) -> tuple[list[Any], list[str], list[object]]:
    """Holders, names, and what stands for a name that is gone."""
    pairs = list(places.values())
    return [x for x, _ in pairs], [name for _, name in pairs], [ABSENT] * len(pairs)
