"""Tensors in plain attributes of a module and in containers there: neither parameters nor buffers."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bslite.frontends.common.lazy import load_torch

if TYPE_CHECKING:
    import torch

DEPTH = 3  # containers in containers that are looked into


def elements(value: Any) -> list[Any]:
    """What a container holds; nothing of anything else."""
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, (list, tuple, set, frozenset)) else []


def tensors_within(value: Any, depth: int = DEPTH) -> "Iterator[torch.Tensor]":
    """``value`` itself if it is a tensor, or those in a container."""
    if isinstance(value, load_torch().Tensor):
        yield value
    elif depth:
        for item in elements(value):
            yield from tensors_within(item, depth - 1)


@contextmanager
def unchanged(module: "torch.nn.Module") -> Iterator[None]:
    """Put back what is written to such tensors meanwhile: torch's stand-ins for them write through, while
    those for parameters and buffers do not.
    """
    torch = load_torch()
    registered = {id(t) for t in (*module.parameters(), *module.buffers())}
    loose = {id(t): t for m in module.modules() for value in vars(m).values() for t in tensors_within(value)}
    before = [
        (t, t._version, t.detach().clone())
        for place, t in loose.items()
        if place not in registered and t.layout == torch.strided and not (t.is_meta or t.is_inference())
    ]
    try:
        yield
    finally:
        with torch.no_grad():
            for t, version, value in before:
                if t._version != version:
                    t.copy_(value)
