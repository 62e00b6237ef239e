"""Nested arguments and results as a list of leaves and back.

They are pytrees, dataclasses unknown to torch, and objects that hold tensors in their attributes, such as the
caches of language models.
"""

import copy
import dataclasses
import enum
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from bslite.errors import UnsupportedError
from bslite.frontends.torch.tracing.reach import elements


class Objects(list[Any]):
    """The objects made so far, and ``shared``, the containers, by what they stand for: each is made once."""

    shared: dict[int, Any]

    def __init__(self, known: Iterable[Any] = ()) -> None:
        super().__init__(known)
        self.shared = {}


#: A number in an object that is another at every call: the object by its place, the attribute.
Counter = tuple[int, str]
#: Makes a value of the next leaves.
Build = Callable[[Iterator[Any], Objects], Any]
GROWS = 2  # of the four axes of a cache's tensors the one along which tokens are
_CLOSED = (
    type, types.ModuleType, types.FunctionType, types.MethodType, types.BuiltinFunctionType, enum.Enum,
    BaseException, torch.nn.Module, torch.Tensor, torch.Generator, torch.UntypedStorage,
)  # fmt: skip


class Structure:
    """A value without its leaves. ``build(leaves)`` makes such a value of other leaves.

    ``objects`` are those that were opened, in the order in which `build` makes new ones.
    """

    def __init__(
        self, value: Any, is_leaf: Callable[[Any], bool], known: Sequence[Any] = (), *, empty: bool = False,
        counters: Sequence[Counter] = (),
    ) -> None:  # fmt: skip
        """``is_leaf(x)``: whether x is replaced by `build`; other values stay as they are, but for objects
        that hold leaves, with ``empty`` for all objects. ``known``: objects in whose places `build` puts
        those that it is given. ``counters`` are leaves, too, at the end: tensors as long as they say.

        Raises UnsupportedError for a leaf in an object that cannot be opened.
        """
        self.leaves: list[Any] = []
        self.inside: list[bool] = []  # whether a leaf is an object's
        self.objects: list[Any] = []
        self._is_leaf, self._depth, self._empty = is_leaf, 0, empty
        self._places = {id(x): i for i, x in enumerate(known)}
        self._shared: dict[int, Any] = {}  # containers that have been read, alive while others are, by id
        self._build = self._read(value)
        self._shared = {}
        self.single = is_leaf(value)
        self.counters = tuple(counters)
        self.leaves += counted(self.objects, self.counters)
        self.inside += [False] * len(self.counters)

    def build(self, leaves: Iterable[Any], known: Sequence[Any] = ()) -> Any:
        """The value with ``leaves`` in their places."""
        return self._build(iter(leaves), Objects(known))

    def rebuilt(self, leaves: Iterable[Any]) -> tuple[Any, list[Any]]:
        """The value, and the new objects in the places of ``objects``."""
        made, given = Objects(), iter(leaves)
        value = self._build(given, made)
        for (place, name), tensor in zip(self.counters, given, strict=True):
            object.__setattr__(made[place], name, tensor.shape[0])
        return value, made

    def _read(self, value: Any) -> Build:
        if self._is_leaf(value):
            self.leaves.append(value)
            self.inside.append(bool(self._depth))
            return _next
        place = self._places.get(id(value))
        if place is not None:
            return lambda leaves, made: made[place]
        key = id(value)
        if key in self._shared:
            return lambda leaves, made: made.shared[key]
        plain = bool(pytree.tree_is_leaf(value))
        data = dataclasses.is_dataclass(value) and not isinstance(value, type)
        if plain and data and not self._empty:
            names = {f.name: None for f in dataclasses.fields(value)} | getattr(value, "__dict__", {})
            return self._read_attributes(value, {name: getattr(value, name) for name in names}, False)
        if plain and opens(value) and (self._empty or self._depth or _holds(value, self._is_leaf)):
            return self._read_attributes(value, vars(value), True)
        if plain:
            if not isinstance(value, _CLOSED) and _holds(value, self._is_leaf):
                raise UnsupportedError(f"a {type(value).__name__} holds tensors in a way that is not known")
            self._check(value)
            return lambda leaves, made: set(value) if type(value) is set else value
        children, spec = pytree.tree_flatten(value, is_leaf=lambda x: x is not value)
        builds = [self._read(child) for child in children]
        self._shared[key] = value
        size = type(value) is torch.Size

        def rebuild(leaves: Iterator[Any], made: Objects) -> Any:
            inner = [build(leaves, made) for build in builds]
            new = torch.Size(inner) if size else pytree.tree_unflatten(inner, spec)
            made.shared[key] = new
            return new

        return rebuild

    def _check(self, value: Any) -> None:
        """Raise UnsupportedError for what is not to be given as it is."""

    def _read_attributes(self, value: Any, attributes: dict[str, Any], opened: bool) -> Build:
        shell = _shell(value, attributes)
        if opened:
            self._places[id(value)] = len(self._places)
            self.objects.append(value)
            self._depth += 1
        builds = {name: self._read(x) for name, x in attributes.items()}
        counts = lengths(attributes) if opened and self._empty else {}
        if opened:
            self._depth -= 1
        else:
            self._shared[key := id(value)] = value

        def rebuild(leaves: Iterator[Any], made: Objects) -> Any:
            new = copy.copy(shell)
            if opened:
                made.append(new)
            else:
                made.shared[key] = new
            for name, build in builds.items():
                object.__setattr__(new, name, build(leaves, made))
            for name, tensor in counts.items():
                object.__setattr__(new, name, getattr(new, tensor).shape[GROWS])
            return new

        return rebuild


class _Result(Structure):
    """What a forward gives: not the layers of the copy that was traced."""

    def _check(self, value: Any) -> None:
        held = getattr(value, "__self__", value)  # of a method
        if isinstance(held, torch.nn.Module):
            raise UnsupportedError(f"its results hold a layer, a {type(held).__name__}")


class Returned:
    """What a forward returns, changes of the objects among its arguments, and notes on layers."""

    def __init__(
        self, result: Any, changes: "Sequence[tuple[int, str, Any]]", is_leaf: Callable[[Any], bool],
        objects: Sequence[Any], notes: "Mapping[tuple[str, str], Any]",
    ) -> None:  # fmt: skip
        """``changes``: an object by its place, an attribute, and the attribute's new value. ``notes``: the
        paths of layers and names of attributes, and their values.
        """
        self._changes = [(place, name) for place, name, _ in changes]
        self.noted = list(notes)
        plain = not changes and not notes
        value = result if plain else (result, [x for *_, x in changes], list(notes.values()))
        self._structure = _Result(value, is_leaf, objects)
        self.leaves = self._structure.leaves
        self.single = self._structure.single

    def holders(self, module: torch.nn.Module) -> list[dict[str, Any]]:
        """The attributes of the layers that each note goes to."""
        return [vars(module.get_submodule(path)) for path, _ in self.noted]

    def build(
        self, leaves: Sequence[Any], objects: Sequence[Any] = (), holders: Sequence[dict[str, Any]] = ()
    ) -> Any:
        """The result with ``leaves`` in their places; ``objects``, the call's own, are changed, and notes are
        set in ``holders``.
        """
        made = self._structure.build(leaves, objects)
        if not self._changes and not self.noted:
            return made
        result, values, notes = made
        for (place, name), value in zip(self._changes, values, strict=True):
            _assign(vars(objects[place]), name, value)
        for held, (_, name), value in zip(holders, self.noted, notes, strict=True):
            held[name] = value
        return result


class Before:
    """The attributes of some objects, to tell afterwards what has changed."""

    def __init__(self, objects: Sequence[Any]) -> None:
        self._objects = objects
        self._seen = [{k: copied(v) for k, v in vars(x).items()} for x in objects]

    def changes(self) -> list[tuple[int, str, Any]]:
        """Each changed attribute: its object's place, its name, its present value.

        Raises UnsupportedError if an attribute is gone.
        """
        found = []
        for place, (x, seen) in enumerate(zip(self._objects, self._seen, strict=True)):
            if gone := seen.keys() - vars(x).keys():
                raise UnsupportedError(f"the forward deletes {', '.join(sorted(gone))} of its argument")
            found += [(place, k, v) for k, v in vars(x).items() if k not in seen or not same(seen[k], v)]
        return found


def lengths(attributes: dict[str, Any]) -> dict[str, str]:
    """The numbers among a cache's attributes that say how long one of its tensors is, and that tensor."""
    held = {x.shape[GROWS]: k for k, x in attributes.items() if isinstance(x, torch.Tensor) and x.ndim == 4}
    return {k: held[n] for k, n in attributes.items() if type(n) is int and n in held} if held else {}


def numbers(objects: Sequence[Any]) -> dict[Counter, int]:
    """The whole numbers among the attributes of objects, but for `lengths`."""
    found: dict[Counter, int] = {}
    for place, value in enumerate(objects):
        counts = lengths(vars(value))
        found |= {(place, k): n for k, n in vars(value).items() if type(n) is int and k not in counts}
    return found


def counted(objects: Sequence[Any], counters: Sequence[Counter]) -> list[torch.Tensor]:
    """For each counter a tensor, of one element in memory, that is as long as it says."""
    return [torch.empty(1).expand(vars(objects[place])[name]) for place, name in counters]


def opens(value: Any) -> bool:
    """Whether ``value`` is an object whose attributes are all that it holds."""
    cls = type(value)
    return (
        isinstance(getattr(value, "__dict__", None), dict)
        and not isinstance(value, (*_CLOSED, list, tuple, dict, set))
        and not callable(value)
        and not any("__slots__" in vars(c) and vars(c)["__slots__"] for c in cls.__mro__)
        and cls.__reduce_ex__ is object.__reduce_ex__
    )


def _next(leaves: Iterator[Any], made: Objects) -> Any:
    return next(leaves)


def _shell(value: Any, attributes: Iterable[str]) -> Any:
    """A copy of ``value`` without what the attributes hold."""
    shell = copy.copy(value)
    for name in attributes:
        object.__setattr__(shell, name, None)
    return shell


def _holds(value: Any, is_leaf: Callable[[Any], bool], depth: int = 6) -> bool:
    """Whether a leaf is reached from ``value`` by attributes, elements and slots."""
    if is_leaf(value):
        return True
    if not depth or isinstance(value, _CLOSED):
        return False
    inner = elements(value)
    inner += getattr(value, "__dict__", {}).values()
    for cls in type(value).__mro__:
        slots = vars(cls).get("__slots__", ())
        names = (slots,) if isinstance(slots, str) else slots
        inner += [getattr(value, name) for name in names if isinstance(name, str) and hasattr(value, name)]
    return any(_holds(x, is_leaf, depth - 1) for x in inner)


def copied(value: Any, depth: int = 4) -> Any:
    """``value``; of containers a copy, in which later changes do not show."""
    if type(value) in (list, tuple) and depth:
        return type(value)([copied(v, depth - 1) for v in value])
    if type(value) is dict and depth:
        return {k: copied(v, depth - 1) for k, v in value.items()}
    if type(value) in (OrderedDict, defaultdict) and depth:
        made = copy.copy(value)
        made.update({k: copied(v, depth - 1) for k, v in value.items()})
        return made
    return copy.copy(value) if type(value) in (set, deque) else value


def same(before: Any, after: Any) -> bool:
    """Whether what `copied` has kept is as it was: tensors by identity, anything else by its value."""
    if before is after:
        return True
    if type(before) is not type(after) or isinstance(before, torch.Tensor):
        return False
    if isinstance(before, (list, tuple, deque)):
        return len(before) == len(after) and all(map(same, before, after))
    if type(before) in (dict, OrderedDict, defaultdict):
        return list(before) == list(after) and all(same(before[k], after[k]) for k in before)
    if hasattr(before, "__dict__"):
        return False  # of objects, which may hold traced tensors, nothing is compared
    try:
        return bool(before == after)
    except Exception:  # what does not compare is another one
        return False


def attributes_of(modules: Iterable[torch.nn.Module]) -> list[dict[str, Any]]:
    """The present attributes of each module. Those that torch itself keeps on a module are not copied."""
    own = vars(torch.nn.Module()).keys()
    return [{k: v if k in own else copied(v, 3) for k, v in vars(m).copy().items()} for m in modules]


def equal(some: list[Any], others: list[Any]) -> bool:
    """Whether what was seen, ``others``, is what there is."""
    try:
        return others == some
    except Exception:  # an attribute that does not compare, such as a tensor, is another one
        return False


def _assign(attributes: dict[str, Any], name: str, value: Any) -> None:
    """Set an attribute; a list or dict stays the one that it was, for others who hold it."""
    held = attributes.get(name)
    if type(held) is list and type(value) is list:
        held[:] = value
    elif type(held) is dict and type(value) is dict:
        held.clear()
        held.update(value)
    else:
        attributes[name] = value
