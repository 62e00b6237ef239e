"""Hooks that make a weight of a layer from its parameters before every call, as torch's old ``weight_norm``
and ``spectral_norm`` do: a trace holds what they compute. They run once more after a call that no layer saw.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch

from bslite.errors import UnsupportedError

#: Where such hooks come from.
MAKING = ("torch.nn.utils.weight_norm", "torch.nn.utils.spectral_norm")


def made_anew(attributes: dict[str, Any]) -> set[str]:
    """The attributes of a layer that hooks make before every call."""
    hooks = (attributes.get("_forward_pre_hooks") or {}).values()
    return {h.name for h in hooks if is_making(h)}


def is_making(hook: Any) -> bool:
    """Whether a hook makes an attribute from parameters, as `torch.nn.utils.weight_norm`'s does."""
    return getattr(hook, "__module__", "") in MAKING and hasattr(hook, "compute_weight")


def make_weights(module: torch.nn.Module) -> list[Callable[[], None]]:
    """What makes the weights of layers inside a module as their hooks do, and changes nothing else: no vector
    of a spectral norm. Torch itself calls the module's hooks.
    """
    inside = [m for m in module.modules() if m is not module]
    found = [(h, m) for m in inside for h in m._forward_pre_hooks.values() if is_making(h)]
    return [functools.partial(_make, h, m) for h, m in found]


def _make(hook: Any, layer: torch.nn.Module) -> None:
    if hasattr(hook, "n_power_iterations"):
        setattr(layer, hook.name, hook.compute_weight(layer, do_power_iteration=False))
    else:
        hook(layer, ())


def check_made(module: torch.nn.Module, constants: Iterable[Any], name: str) -> None:
    """Raise UnsupportedError where a trace takes for a constant what a hook makes before another call."""
    held = (vars(m).get(k) for m in module.modules() for k in made_anew(vars(m)))
    made = {t.data_ptr() for t in held if isinstance(t, torch.Tensor)}
    if any(isinstance(c, torch.Tensor) and c.numel() and c.data_ptr() in made for c in constants if made):
        raise UnsupportedError(
            f"model {name!r}: its forward reads a weight that a hook makes, but not in a call of that layer"
        )
