"""Notices changes of a module. Every call asks for them, so all comparisons run in C.

There are three kinds of change, which cost differently to follow. *Structure*: a submodule, hook, parameter
or plain attribute is replaced, a mode is switched, or what forwards read besides is another (see
`bslite.dropin.surroundings`); what was traced may no longer hold. *Tensors*: other tensor objects or other
memory stand under the same names (``load_state_dict(assign=True)``, ``p.data = ...``, ``.to()``). *Values*:
the same memory has been written to.

The version counters of the tensors show most writes. Writes through NumPy and ``p.data.mul_()`` leave the
counters alone; a digest of words sampled from every tensor shows those. Neither shows a write that leaves the
counter alone and misses all sampled words, such as one element of a large weight through ``.data``; after
such a write call `bslite.dropin.refresh`.

Most calls need not ask for each: a `Glance` says that no dict and no tensor has changed.
"""

from collections.abc import Iterable
from itertools import chain
from operator import attrgetter, getitem, is_
from typing import Any

import torch

from bslite.dropin.inside import CALL, Stand
from bslite.dropin.kept import Kept
from bslite.dropin.making import made_anew
from bslite.dropin.noted import Noted, settle
from bslite.dropin.structure import attributes_of, equal
from bslite.dropin.surroundings import PLAIN, Surroundings
from bslite.engines.cpu.glance import Glance
from bslite.errors import UnsupportedError
from bslite.frontends.torch.tracing.reach import hidden_modules

_requires_grad = attrgetter("requires_grad")
LEAST = 8  # calls that a glance is to serve, or none is made again
HOOKS = ("_forward_hooks", "_forward_pre_hooks")


class Watch:
    """The state of a module. ``tensors``: its parameters, buffers and ``extra`` tensors, in a fixed order."""

    def __init__(
        self,
        module: torch.nn.Module,
        extra: Iterable[torch.Tensor] = (),
        surroundings: Surroundings | None = None,
        noted: Noted | None = None,
    ) -> None:
        """``surroundings``: as they were at the last trace, by default as they are now. ``noted``: attributes
        that calls set, whose values do not count.

        Raises UnsupportedError for a module with parts or tensors whose changes cannot be seen.
        """
        hidden = hidden_modules(module)
        modules = [*module.modules(), *hidden]
        if scripted := [type(m).__name__ for m in modules if isinstance(m, torch.jit.ScriptModule)]:
            raise UnsupportedError(f"it holds a {scripted[0]}, which has no Python to trace")
        self.surroundings = Surroundings(module) if surroundings is None else surroundings
        self._attributes = [m.__dict__ for m in modules]
        self._seen = attributes_of(modules)
        self._noted, self._places = noted, noted.places if noted else frozenset()
        names = noted.of(module) if noted else []
        names += [[] for _ in modules[len(names) :]]  # nothing is noted of hidden ones
        notes = zip(self._attributes, self._seen, names, strict=True)
        self._notes = [(present, seen, own) for present, seen, own in notes if own]
        for own in self._notes:
            settle(*own)
        self._hooks = [m.__dict__[h] for m in modules if m is not module for h in HOOKS if h in m.__dict__]
        self._hooked = any(self._hooks)
        fixed: list[Any] = [(m._modules, k) for m in modules for k in m._modules]
        # A trace takes the tensors of hidden ones as constants.
        fixed += [(d, k) for m in hidden for d in (m._parameters, m._buffers) for k in d]
        self._fixed_dicts, self._fixed_keys = _columns(fixed)
        self._fixed = list(map(getitem, self._fixed_dicts, self._fixed_keys))
        self._dicts = [d for m in modules for d in (m._parameters, m._buffers, m._modules)]
        self._sizes = list(map(len, self._dicts))
        held = [(d, k) for m in modules for d in (m._parameters, m._buffers) for k in d]
        self._tensor_dicts, self._tensor_keys = _columns(held)
        self._held = list(map(getitem, self._tensor_dicts, self._tensor_keys))  # tensors or None
        #: Whether a graph traced with other tensors holds for these.
        self.forms = [None if t is None else (t.shape, t.dtype, t.device, t.layout) for t in self._held]
        found = chain(self._held, extra)
        self._kept = Kept(t for t in found if t is not None)
        self.tensors = self._kept.tensors
        known = {id(t) for m in module.modules() for d in (m._parameters, m._buffers) for t in d.values()}
        self._constants = [t for t in self.tensors if id(t) not in known]  # of a trace, if it reads them
        self._lie = [t.data_ptr() for t in self._constants]
        self._containers: list[Any] = []
        self._copies: list[Any] = []
        self._glance: Glance | None = None
        self._glances = LEAST
        self._look()

    def note(self) -> None:
        """Compare with the present values from now on."""
        self._kept.note()

    def _look(self) -> bool:
        """Make the glance by which the next calls see that nothing has changed, unless the last one that was
        made has served few of them. Return whether something has, before the glance.
        """
        worth, self._glance = self._glances >= LEAST and not self._notes, None
        if not worth:
            return False
        try:
            self._containers, self._copies = _within(self._attributes, self._seen)
            glance = Glance((*self._attributes, *self._dicts, *self._hooks), self.tensors)
        except LookupError:
            return False
        if self._asked():  # another thread changed it meanwhile
            return True
        self._glance, self._glances = glance, 0
        return False

    def changed(self) -> bool:
        """Whether anything has."""
        if self._glance is not None and self._as_seen(self._glance):
            self._glances += 1
            return False
        return self._asked() or (self._glance is not None and self._look())

    def _asked(self) -> bool:
        """Whether anything has changed, by asking for each thing."""
        return self.structure_changed() or self.tensors_changed() or self.values_changed()

    def _as_seen(self, glance: Glance) -> bool:
        """Whether a glance, and what it does not see, say that nothing has changed."""
        return (
            glance.same()
            and equal(self._containers, self._copies)
            and (self._noted is None or self._noted.places is self._places)
            and not self.surroundings.changed()
            and not self._kept.overwritten()
        )

    def structure_changed(self) -> bool:
        """Whether what was traced may not hold any more."""
        if self._noted is not None and self._noted.places is not self._places:
            return True  # traces may read what calls set
        if self._notes and not all(settle(*place) for place in self._notes):
            return True
        same = equal(self._attributes, self._seen)
        if not same and (same := equal(lasting(self._attributes), lasting(self._seen))):
            for own, seen in zip(self._attributes, self._seen, strict=True):
                seen.update({k: own[k] for k in made_anew(own) if k in own})
        return not (
            same
            and any(self._hooks) == self._hooked
            and self._sizes == list(map(len, self._dicts))
            and self._lie == [t.data_ptr() for t in self._constants]
            and all(map(is_, self._fixed, map(getitem, self._fixed_dicts, self._fixed_keys)))
            and not self.surroundings.changed()
        )

    def tensors_changed(self) -> bool:
        """Whether a name stands for another tensor, or a tensor for other memory."""
        return not (
            all(map(is_, self._held, map(getitem, self._tensor_dicts, self._tensor_keys)))
            and not self._kept.moved()
        )

    def values_changed(self) -> bool:
        """Whether the tensors have been written to."""
        return self._kept.written()

    def requires_grad(self) -> bool:
        """Whether a parameter or another tensor does."""
        return any(map(_requires_grad, self.tensors))


def _within(attributes: list[dict[str, Any]], seen: list[dict[str, Any]]) -> tuple[list[Any], list[Any]]:
    """The attributes that are compared by what they are equal to, and what was seen of them."""
    pairs = [
        (own[k], copy) for own, kept in zip(attributes, seen, strict=True) for k, copy in kept.items()
        if k in own and own[k] is not copy and not _fixed(copy)
    ]  # fmt: skip
    return [value for value, _ in pairs], [copy for _, copy in pairs]


def _fixed(value: Any) -> bool:
    """Whether a value cannot change."""
    return isinstance(value, PLAIN) or (type(value) is tuple and all(map(_fixed, value)))


def lasting(attributes: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Attributes without what stands for a call while an outer forward runs, and what hooks make."""
    kept = []
    for own in attributes:
        made = made_anew(own)
        kept.append(
            {
                k: v
                for k, v in own.copy().items()
                if not (k == CALL and isinstance(v, Stand)) and k not in made
            }
        )
    return kept


def _columns(pairs: list[tuple[dict[str, Any], str]]) -> tuple[list[dict[str, Any]], list[str]]:
    return [d for d, _ in pairs], [k for _, k in pairs]
