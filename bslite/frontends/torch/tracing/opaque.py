"""Calls of a ``torch.autograd.Function`` in a trace that gradients go through: each is one operation of the
graph, which torch runs, with the backward pass that the function has.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from bslite.frontends.common.lazy import load_torch

if TYPE_CHECKING:
    from torch import Tensor

PLAIN = (bool, int, float, str, type(None))


@dataclass
class Call:
    """A function's ``apply``, its arguments with the tensors left out, and whether it gives one tensor."""

    apply: Callable[..., Any]
    arguments: list[Any]
    places: list[int]
    single: bool = True

    def __call__(self, tensors: "Sequence[Tensor]") -> "list[Tensor]":
        """The function's results; those that lie in an argument's memory, as a function may give back what it
        takes, are copied.

        Raises NotImplementedError if it writes to an argument, or gives something else than tensors.
        """
        given, versions = list(self.arguments), [x._version for x in tensors]
        for place, tensor in zip(self.places, tensors, strict=True):
            given[place] = tensor
        made = self.apply(*given)
        self.single = not isinstance(made, (tuple, list))
        results = [made] if self.single else list(made)
        if not all(isinstance(x, load_torch().Tensor) for x in results):
            raise NotImplementedError("a torch.autograd.Function gives something else than tensors")
        if versions != [x._version for x in tensors]:
            raise NotImplementedError("a torch.autograd.Function writes to its arguments")
        held = {x.untyped_storage()._cdata for x in tensors}
        return [x.clone() if x.untyped_storage()._cdata in held else x for x in results]


_calls: dict[int, Call] = {}  # by the numbers that nodes have
_numbers = itertools.count()


def called(apply: Callable[..., Any], args: Sequence[Any]) -> Any:
    """What a call of a function's ``apply`` gives, as one operation; None if it takes more than tensors and
    plain values.
    """
    torch = load_torch()
    places = [i for i, x in enumerate(args) if isinstance(x, torch.Tensor)]
    others = [x for x in args if not isinstance(x, torch.Tensor)]
    plain = (*PLAIN, torch.dtype, torch.device, torch.Size)
    if not places or not all(_is_plain(x, plain) for x in others):
        return None
    call = Call(apply, [None if isinstance(x, torch.Tensor) else x for x in args], places)
    number = next(_numbers)
    _calls[number] = call
    made = _operation()(number, [args[i] for i in places])
    return made[0] if call.single else tuple(made)


def _is_plain(value: Any, plain: tuple[type, ...]) -> bool:
    return isinstance(value, plain) or (
        isinstance(value, (tuple, list)) and all(_is_plain(x, plain) for x in value)
    )


@cache
def _operation() -> Any:
    """``torch.ops.bslite.apply``: a call by its number. It may draw numbers."""
    torch = load_torch()
    library = torch.library.Library("bslite", "FRAGMENT")
    library.define("apply(int call, Tensor[] xs) -> Tensor[]", tags=(torch.Tag.nondeterministic_seeded,))
    library.impl("apply", lambda call, xs: _calls[call](xs), "CompositeImplicitAutograd")
    _kept.append(library)
    return torch.ops.bslite.apply.default


_kept: list[Any] = []  # a library undefines its operations when it goes
