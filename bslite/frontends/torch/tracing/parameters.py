"""A forward that runs to be looked at, and must not write to the parameters that it shares with a module."""

from collections.abc import Iterable
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING, Any

from bslite.errors import UnsupportedError
from bslite.frontends.common.lazy import load_torch

if TYPE_CHECKING:
    import torch


def parameters_kept(parameters: "Iterable[torch.Tensor]") -> Any:
    """A context in which operations that would write to ``parameters`` raise UnsupportedError. Control flow
    of torch's raises there, too: it would be compiled, which is not for such a context.
    """
    torch = load_torch()
    stack = ExitStack()
    stack.enter_context(torch.compiler.set_stance("force_eager"))
    stack.enter_context(_mode()(set(map(_place, parameters)) - {None}))
    return stack


def alias(parameter: "torch.nn.Parameter") -> "torch.nn.Parameter":
    """Another parameter in the same memory: what becomes of its ``data`` is its own."""
    kind = load_torch().nn.Parameter
    if type(parameter) is not kind:
        return parameter
    made: torch.nn.Parameter = kind(parameter.detach(), parameter.requires_grad)
    vars(made).update(vars(parameter))
    return made


def _place(value: Any) -> int | None:
    """The address of the memory that a tensor lies in, if it is a dense one."""
    torch = load_torch()
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return None
    place: int = value.untyped_storage().data_ptr()
    return place


@cache
def _mode() -> Any:
    torch = load_torch()
    from torch.utils._python_dispatch import TorchDispatchMode

    class Kept(TorchDispatchMode):
        def __init__(self, places: set[int]) -> None:
            super().__init__()
            self.places = places

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if func._schema.is_mutable:
                self._check(func._schema.arguments, args, kwargs)
            return func(*args, **kwargs)

        def _check(self, arguments: Any, args: Any, kwargs: Any) -> None:
            given = dict(zip([a.name for a in arguments], args, strict=False)) | kwargs
            values = [given.get(a.name) for a in arguments if a.alias_info and a.alias_info.is_write]
            for tensor in torch.utils._pytree.tree_leaves(values):
                if _place(tensor) in self.places:
                    raise UnsupportedError("its forward changes a parameter in place")

    return Kept
