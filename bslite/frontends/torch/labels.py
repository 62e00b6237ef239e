"""Names of a forward's results: keys and places within what it returns."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def labelled(result: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a nested result with their names, in order.

    Tuples, lists and mappings are opened, dataclasses too; None is left out. A key is a name, a place among
    the results is "output_0"; below that, both are joined by dots. A result that is one tensor is "output".
    """
    parts: Iterable[tuple[Any, Any]]
    if isinstance(result, Mapping):
        parts = result.items()
    elif isinstance(result, (list, tuple)):
        parts = zip(getattr(result, "_fields", range(len(result))), result, strict=True)
    elif dataclasses.is_dataclass(result) and not isinstance(result, type):
        parts = [(f.name, getattr(result, f.name)) for f in dataclasses.fields(result)]
    elif result is None:
        return
    else:
        yield name or "output", result
        return
    for key, value in parts:
        yield from labelled(
            value, f"{name}.{key}" if name else f"output_{key}" if type(key) is int else str(key)
        )
