"""``dynamic_shapes`` in torch.export's own words: names for sizes, and which axes are free."""

from collections.abc import Iterator, Mapping
from typing import Any

from bslite.frontends.common.lazy import load_torch


def as_hints(dynamic_shapes: Any) -> Any:
    """``dynamic_shapes`` with ``Dim.AUTO`` for every named size.

    torch.export refuses a named size if the module asks of it what some of its values do not satisfy, also
    where the answer changes nothing. A model says itself which sizes it takes.
    """
    torch = load_torch()
    named = (str, torch.export.Dim)
    return torch.utils._pytree.tree_map(
        lambda given: torch.export.Dim.AUTO if isinstance(given, named) else given, dynamic_shapes
    )


def free_axes(arguments: Mapping[str, Any], dynamic: Any) -> list[dict[int, str]]:
    """For each tensor among the arguments, in order: its free axes with their names, "" for no name."""
    if isinstance(dynamic, (list, tuple)):
        dynamic = dict(zip(arguments, dynamic, strict=False))
    return list(_within(arguments, dynamic))


def _within(value: Any, dynamic: Any) -> Iterator[dict[int, str]]:
    torch = load_torch()
    if isinstance(value, torch.Tensor):
        sequence = isinstance(dynamic, (list, tuple))
        axes = enumerate(dynamic) if sequence else dynamic.items() if isinstance(dynamic, Mapping) else ()
        yield {axis: d if isinstance(d, str) else getattr(d, "__name__", "") for axis, d in axes if _free(d)}
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _within(item, dynamic.get(key) if isinstance(dynamic, Mapping) else None)
    elif isinstance(value, (list, tuple)):
        of = dynamic if isinstance(dynamic, (list, tuple)) else ()
        for i, item in enumerate(value):
            yield from _within(item, of[i] if i < len(of) else None)
    else:
        leaves = torch.utils._pytree.tree_leaves(value)
        yield from ({} for x in leaves if isinstance(x, torch.Tensor))


def _free(dim: Any) -> bool:
    """Whether an entry for an axis leaves it free: a name, a Dim, Dim.AUTO or Dim.DYNAMIC."""
    hint = getattr(getattr(dim, "type", None), "name", "")
    return hint in ("AUTO", "DYNAMIC") or isinstance(dim, (str, load_torch().export.Dim))
