"""Attributes that a forward writes before it reads them, if it ever does: ``self.weights = softmax(...)``, a
note for others. They are results of a trace, which a call sets on the layers of the module.

No call depends on what a call before has noted, which is made sure of: a second trace, with a `Slot` in the
place of each such attribute, says which of them the forward reads before it writes them.
"""

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from bslite.dropin.making import made_anew
from bslite.dropin.structure import attributes_of, same
from bslite.dropin.surroundings import PLAIN
from bslite.errors import UnsupportedError

Place = tuple[str, str]  # a layer's path in the module, and the name of an attribute
VARIES = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)  # what of a result a graph makes
#: Lists in which torch's recurrent modules repeat their parameters; their forward writes them anew when the
#: parameters are others, as the stand-ins of a trace are. And the mark of transformers' hooks.
APART = ("_flat_weights", "_flat_weight_refs", "_output_capturing_hooks_installed")
OWN = vars(torch.nn.Module()).keys()  # what torch itself keeps on a layer
CHANGES = "its forward changes attributes of the module"


class ChangesState(UnsupportedError):
    """A forward changes what it may read at the next call, such as attributes of its module."""


@dataclass
class Noted:
    """The attributes that traces of a module set, which none reads that was made since. ``places`` is another
    set whenever there are more.
    """

    places: frozenset[Place] = frozenset()

    def add(self, places: Collection[Place]) -> bool:
        """Whether there are more now: traces before may read these."""
        more = frozenset(places) - self.places
        if more:
            self.places |= more
        return bool(more)

    def of(self, module: torch.nn.Module) -> list[list[str]]:
        """The names of such attributes of each layer, in the order of ``module.modules()``."""
        names: dict[str, list[str]] = {path: [] for path, _ in module.named_modules()}
        for path, name in self.places:
            if path in names:  # else the layer is another one now
                names[path].append(name)
        return list(names.values())


class Anything:
    """What any value of a noted attribute is equal to."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


ANY = Anything()


def settle(present: dict[str, Any], seen: dict[str, Any], names: Iterable[str]) -> bool:
    """Have ``seen``, what is known of a layer's attributes, say of those that calls set only that they are
    there. Whether none is gone that was. On the left of a comparison, ``seen`` keeps no value alive.
    """
    for name in names:
        if name in present:
            seen[name] = ANY
        elif name in seen:
            return False
    return True


@dataclass
class Accesses:
    """What a forward did with watched attributes. ``read``: before it had written them."""

    written: set[Place] = field(default_factory=set)
    read: set[Place] = field(default_factory=set)

    def clear(self) -> None:
        """A forward begins."""
        self.written.clear()
        self.read.clear()


class Slot:
    """An attribute in a layer's class, where Python asks it before it looks at the layer itself."""

    def __init__(self, kind: type, place: Place, accesses: Accesses, held: dict[str, Any]) -> None:
        """``held``: the attributes of the layer, of which it takes its own."""
        self._kind, self._place, self._accesses = kind, place, accesses
        name = place[1]
        self._original = {name: held.pop(name)} if name in held else {}

    def __get__(self, layer: Any, owner: Any = None) -> Any:
        name = self._place[1]
        if layer is None:
            return getattr(super(self._kind, owner), name)
        known = vars(layer)
        if self._place not in self._accesses.written:
            self._accesses.read.add(self._place)
            known = self._original
        return known[name] if name in known else getattr(super(self._kind, layer), name)

    def __set__(self, layer: Any, value: Any) -> None:
        vars(layer)[self._place[1]] = value
        self._accesses.written.add(self._place)

    def __delete__(self, layer: Any) -> None:
        self._accesses.read.add(self._place)
        del vars(layer)[self._place[1]]


def watch(layer: torch.nn.Module, path: str, places: Collection[Place], accesses: Accesses) -> None:
    """Give a layer a subclass of its class, under the same name, with a `Slot` for each place at ``path``.

    Raises ChangesState if its class has no such subclasses.
    """
    kind = type(layer)
    try:
        made: Any = type(
            kind.__name__, (kind,), {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        )
        for own, name in places:
            if own == path:
                setattr(made, name, Slot(made, (own, name), accesses, layer.__dict__))
        layer.__class__ = made
    except Exception as e:
        raise ChangesState(f"{CHANGES} ({path}, of a class of its own kind: {e})") from e


class Notes:
    """The attributes of a module's layers before a forward, and what it changes of them."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._layers = dict(module.named_modules())
        self._held = [vars(m).copy() for m in self._layers.values()]
        self._seen = attributes_of(self._layers.values())

    def changes(self) -> dict[Place, Any]:
        """The attributes that are new or others, with their present values; they are set back.

        Raises ChangesState for changes that no call can make without the forward; those that come after
        the first such one are not set back.
        """
        found: dict[Place, Any] = {}
        known = {id(value) for held in self._held for value in held.values()}
        for (path, layer), seen, held in zip(self._layers.items(), self._seen, self._held, strict=True):
            present: dict[str, Any] = layer.__dict__
            apart = {*APART, *made_anew(held)}
            if gone := seen.keys() - present.keys() - apart:
                raise ChangesState(f"{CHANGES} (it deletes {place_name(path, min(gone))})")
            for name, value in present.copy().items():
                if name in apart or (name in seen and same(seen[name], value)):
                    continue
                if name in OWN or not _can_be_made(value, known):
                    raise ChangesState(f"{CHANGES} ({place_name(path, name)})")
                found[path, name] = value
                if name in held:
                    present[name] = held[name]
                else:
                    del present[name]
        return dict(sorted(found.items()))


@contextmanager
def untouched(module: torch.nn.Module) -> Iterator[None]:
    """Have ``module`` as it is afterwards: a function in the place of a layer's forward may know the module
    itself, and not what is traced in its place.

    Raises ChangesState where it was changed.
    """
    notes = Notes(module)
    try:
        yield
    finally:
        changed = notes.changes()
    if changed:
        raise ChangesState(f"{CHANGES} ({place_name(*min(changed))})")


def place_name(path: str, name: str) -> str:
    """A name for an attribute of a layer."""
    return f"{path}.{name}".lstrip(".")


def agree(traced: Any, real: Any) -> bool:
    """Whether what a trace notes is what a real call of the same arguments does, but for what graphs make: a
    name with a size in it may be written in symbols, a time is another one.
    """
    if isinstance(traced, VARIES):
        return isinstance(real, (torch.Tensor, int, float))
    if type(traced) is not type(real):
        return False
    if _is_constant(traced):
        return bool(traced == real)
    ours, theirs = _inner(traced), _inner(real)
    return len(ours) == len(theirs) and all(map(agree, ours, theirs))


def _is_constant(value: Any) -> bool:
    return isinstance(value, PLAIN) and not isinstance(value, torch.Size)


def _can_be_made(value: Any, known: Collection[int]) -> bool:
    """Whether a value can be made anew: of tensors, sizes, numbers and words, in containers and dataclasses
    that the forward has made. ``known``: the ids of what was there before.
    """
    if isinstance(value, VARIES) or _is_constant(value):
        return True
    return id(value) not in known and _opens(value) and all(_can_be_made(x, known) for x in _inner(value))


def _opens(value: Any) -> bool:
    """Whether `_inner` is all that a value holds."""
    if type(value) is set or not pytree.tree_is_leaf(value):
        return True
    data = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return data and vars(value).keys() == {f.name for f in dataclasses.fields(value)}


def _inner(value: Any) -> Sequence[Any]:
    """What a container or a dataclass holds."""
    if type(value) is set:
        return sorted(value, key=repr)
    if pytree.tree_is_leaf(value):
        return list(vars(value).values())
    return [*pytree.tree_flatten(value, is_leaf=lambda x: x is not value)[0], *_keys(value)]


def _keys(value: Any) -> list[Any]:
    return list(value) if isinstance(value, dict) else []
