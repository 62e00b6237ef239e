"""A copy of a module's Python objects that shares its tensors, for a trace: ``torch.export`` puts stand-ins
in the places of parameters while it traces, and another thread may be using the module.
"""

from collections import OrderedDict
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import torch

from bslite.dropin.inside import CALL
from bslite.dropin.noted import CHANGES, ChangesState, Noted
from bslite.frontends.torch.tracing.copies import deep_copy, flat_copy
from bslite.frontends.torch.tracing.reach import held, hidden_modules, tensors_within, within

OUTER_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
)


def shell_of(module: torch.nn.Module, whole: bool = False) -> torch.nn.Module:
    """A deep copy that shares all tensors with ``module``, without the hooks on the outside.

    A module that holds objects that cannot be copied gets a flat copy; with ``whole`` that is an
    ChangesState.
    """
    memo: dict[int, Any] = {id(t): _ordinary(t) for t in held(within(module))}
    hooks = {h: module.__dict__[h] for h in OUTER_HOOKS if h in module.__dict__}
    memo.update({id(h): type(h)() for h in hooks.values()})
    try:
        shell = deep_copy(module, memo)
    except Exception as e:
        if whole:
            raise ChangesState(f"{CHANGES}, of which there is no copy: {e}") from e
        shell = flat_copy(module)
        object.__setattr__(shell, "__dict__", {**vars(module), **{h: OrderedDict() for h in hooks}})
    vars(shell).pop(CALL, None)
    return shell


def _ordinary(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor``; for one made in torch.inference_mode, which torch.export refuses, one of its memory."""
    if not tensor.is_inference() or tensor.device.type != "cpu" or tensor.layout != torch.strided:
        return tensor
    with torch.inference_mode(False):
        bits = {torch.bfloat16: torch.int16}.get(tensor.dtype, tensor.dtype)  # of which NumPy has arrays
        made = torch.from_numpy(tensor.detach().view(bits).numpy()).view(tensor.dtype)
        return torch.nn.Parameter(made, False) if isinstance(tensor, torch.nn.Parameter) else made


def reachable_tensors(module: torch.nn.Module, noted: Noted | None = None) -> Iterator[torch.Tensor]:
    """Parameters, buffers, and the tensors in plain attributes and containers there, but none ``noted``."""
    apart = noted.of(module) if noted else []
    for m, names in zip_longest([*module.modules(), *hidden_modules(module)], apart, fillvalue=()):
        for name, value in vars(m).copy().items():
            if name not in names:
                yield from tensors_within(value)
