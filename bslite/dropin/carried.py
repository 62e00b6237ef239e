"""Tensors that a trace would take for constants, because a forward does not read them as parameters or
buffers that torch knows: those of layers in plain lists, of objects (Keras).

A shell of the module gets them under names of its own. While its forward is traced these names are gone, and
what torch has put there stands wherever the forward reads the tensors.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MemberDescriptorType
from typing import Any

import torch

from bslite.frontends.torch.tracing.reach import DEPTH, slots_of, within

NAME = "_bslite_carried_"


@dataclass(frozen=True)
class Place:
    """Where a tensor is held: a key of a dict or list, or a slot of an object."""

    holder: Any
    key: Any
    tensor: torch.Tensor

    @property
    def value(self) -> Any:
        """What is held there now."""
        try:
            if isinstance(self.key, MemberDescriptorType):
                return self.key.__get__(self.holder)
            kind: Any = dict if isinstance(self.holder, dict) else list  # classes of these may do more
            return kind.__getitem__(self.holder, self.key)
        except (LookupError, AttributeError):
            return None

    def put(self, value: Any) -> None:
        """Have it hold ``value``."""
        if isinstance(self.key, MemberDescriptorType):
            self.key.__set__(self.holder, value)
        else:
            kind: Any = dict if isinstance(self.holder, dict) else list
            kind.__setitem__(self.holder, self.key, value)


class Carried:
    """``tensors`` of a ``module`` in a ``shell`` of it. ``registered``: those that torch does not know, by
    the names that the shell gets for them.
    """

    def __init__(
        self, module: torch.nn.Module, shell: torch.nn.Module, tensors: Sequence[torch.Tensor]
    ) -> None:
        wanted = {id(t): t for t in tensors}
        self._held = list(_places(module, wanted, ()))
        self._shell = shell
        shared = {id(x) for x in within(module)}  # which another thread may be running
        self._read = list(_places(shell, wanted, shared))
        known = {id(t): Place(own, k, t) for m in shell.modules() for own in _own(m) for k, t in own.items()}
        self._known = {i: known[i] for i in wanted if i in known}
        placed = {id(place.tensor) for place in self._read}  # not a global one
        strangers = [t for i, t in wanted.items() if i not in known and i in placed]
        self.registered = {f"{NAME}{i}": t for i, t in enumerate(strangers)}
        for name, t in self.registered.items():
            if isinstance(t, torch.nn.Parameter):
                shell.register_parameter(name, t)
            else:
                shell.register_buffer(name, t)

    @contextmanager
    def read(self, twin: torch.nn.Module) -> Iterator[None]:
        """Have the forward of ``twin``, the shell or a copy, read what torch has put in their places."""
        names = [(own, {k: own[k] for k in self.registered if k in own}) for own in _own(twin)]
        stand_ins = {id(self.registered[k]): t for _, held in names for k, t in held.items()}
        stand_ins |= {i: place.value for i, place in self._known.items()}
        places = self._read if twin is self._shell else []
        before = [place.value for place in places]
        try:
            for own, held in names:
                for key in held:
                    del own[key]
            for place in places:
                place.put(stand_ins[id(place.tensor)])
            yield
        finally:
            for place, value in zip(places, before, strict=True):
                place.put(value)
            for own, held in names:
                own.update(held)

    def holds(self) -> bool:
        """Whether the module holds the tensors where it held them."""
        return all(place.value is place.tensor for place in self._held)


def _own(module: torch.nn.Module) -> tuple[dict[str, Any], dict[str, Any]]:
    return module._parameters, module._buffers


def _places(
    module: torch.nn.Module, wanted: Mapping[int, torch.Tensor], but: Collection[int]
) -> Iterator[Place]:
    """Where a module, and what it leads to, holds tensors; objects with the ids ``but`` are left out."""
    for value in within(module):
        if id(value) in but:
            continue
        yield from _items(getattr(value, "__dict__", None), wanted, DEPTH + 1)
        for slot in slots_of(type(value)):
            held = Place(value, slot, None).value  # type: ignore[arg-type]
            if id(held) in wanted:
                yield Place(value, slot, held)
            else:
                yield from _items(held, wanted, DEPTH)


def _items(container: Any, wanted: Mapping[int, torch.Tensor], depth: int) -> Iterator[Place]:
    """Where a dict or a list, and such in it, holds tensors."""
    if not depth or not isinstance(container, (dict, list)):
        return
    items = dict.items(container) if isinstance(container, dict) else enumerate(list.__iter__(container))
    for key, value in list(items):
        if id(value) in wanted:
            yield Place(container, key, value)
        else:
            yield from _items(value, wanted, depth - 1)
