"""Attributes that a forward writes before it reads them, if it ever does: ``self.weights = softmax(...)``, a
note for others. They are results of a trace, which a call sets on the layers of the module.

No call depends on what a call before has noted, which is made sure of: a trace with `slots` in the places of
such attributes says which of them the forward reads before it writes them.
"""

import dataclasses
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from bslite.dropin.making import made_anew
from bslite.dropin.structure import attributes_of, elements, opens, same
from bslite.dropin.surroundings import PLAIN
from bslite.errors import UnsupportedError

Place = tuple[str, str]  # a layer's path in the module, and the name of an attribute
VARIES = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)  # what of a result a graph makes
#: Lists in which torch's recurrent modules repeat their parameters; their forward writes them anew when the
#: parameters are others, as the stand-ins of a trace are. And the mark of transformers' hooks.
APART = ("_flat_weights", "_flat_weight_refs", "_output_capturing_hooks_installed")
OWN = vars(torch.nn.Module()).keys()  # what torch itself keeps on a layer
DEPTH = 6  # of containers and objects
CHANGES = "its forward changes attributes of the module"


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


def settle(present: dict[str, Any], seen: dict[str, Any], names: Iterable[str]) -> bool:
    """Take what calls have noted on a layer for what was seen before. Whether no note is gone."""
    for name in names:
        if name in present:
            seen[name] = present[name]
        elif name in seen:
            return False
    return True


@dataclass
class Accesses:
    """What a forward did with the attributes of `slots`. ``read``: before it had written them."""

    written: set[Place] = field(default_factory=set)
    read: set[Place] = field(default_factory=set)

    def clear(self) -> None:
        """A forward begins."""
        self.written.clear()
        self.read.clear()


class Slot:
    """An attribute in a layer's class, where Python asks it before it looks at the layer itself.

    The layer's own dict has an attribute where there was none, and none where there was one: code that looks
    there, which nobody sees, does something else than in the trace before.
    """

    def __init__(self, kind: type, place: Place, accesses: Accesses, held: dict[str, Any]) -> None:
        """``held``: the attributes of the layer."""
        self._kind, self._place, self._accesses = kind, place, accesses
        name = place[1]
        self._original = {name: held.pop(name)} if name in held else {}
        if not self._original:
            held[name] = object()

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


def watched(
    kind: type, held: dict[str, Any], path: str, places: Collection[Place], accesses: Accesses, **scope: Any
) -> type:
    """A subclass of the class of a layer with attributes ``held``, under its name, with a `Slot` for each of
    the places at ``path``.
    """
    named = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    made = type(kind.__name__, (kind,), {**named, **scope})
    for own, name in places:
        if own == path:
            setattr(made, name, Slot(made, (own, name), accesses, held))
    return made


class Notes:
    """The attributes of a module's layers before a forward, and what it changes of them."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._layers = dict(module.named_modules())
        self._held = [vars(m).copy() for m in self._layers.values()]
        self._seen = attributes_of(self._layers.values())

    def changes(self) -> dict[Place, Any]:
        """The attributes that are new or others, with their present values; they are set back.

        Raises UnsupportedError for changes that no call can make without the forward.
        """
        found: dict[Place, Any] = {}
        for (path, layer), seen, held in zip(self._layers.items(), self._seen, self._held, strict=True):
            present: dict[str, Any] = layer.__dict__
            apart = {*APART, *made_anew(held)}
            if gone := seen.keys() - present.keys() - apart:
                raise UnsupportedError(f"{CHANGES} (it deletes {place_name(path, min(gone))})")
            for name, value in present.copy().items():
                if name in apart or (name in seen and same(seen[name], value)):
                    continue
                if name in OWN or not _is_plain(value):
                    raise UnsupportedError(f"{CHANGES} ({place_name(path, name)})")
                found[path, name] = value
                if name in held:
                    present[name] = held[name]
                else:
                    del present[name]
        return dict(sorted(found.items()))


def place_name(path: str, name: str) -> str:
    """A name for an attribute of a layer."""
    return f"{path}.{name}".lstrip(".")


def constants(value: Any) -> Iterator[Any]:
    """What of a plain value a graph does not make."""
    if isinstance(value, PLAIN):
        yield value
    elif not isinstance(value, VARIES):
        for inner in _held(value):
            yield from constants(inner)


def _held(value: Any) -> Iterable[Any]:
    return elements(value) or getattr(value, "__dict__", {}).values()


def _is_plain(value: Any, depth: int = DEPTH) -> bool:
    """Whether a value can be made anew: of tensors, sizes, numbers and words, in containers and objects."""
    if isinstance(value, (*VARIES, *PLAIN)):
        return True
    known = type(value) in (list, tuple, dict, set) or hasattr(value, "_fields")
    known = known or (dataclasses.is_dataclass(value) and not isinstance(value, type)) or opens(value)
    return bool(known and depth) and all(_is_plain(x, depth - 1) for x in _held(value))
