"""Tables in which each target has functions of its own for the same names."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")


def complete(table: Mapping[str, T], names: Iterable[str], whose: str) -> dict[str, T]:
    """``table``, a target's entry for each name, in the order of ``names``.

    Raises RuntimeError for a missing or an extra name.
    """
    wanted = list(names)
    if set(table) != set(wanted):
        wrong = ", ".join(sorted(set(table) ^ set(wanted)))
        raise RuntimeError(f"functions of the {whose}: {wrong} are missing or not in the contract")
    return {name: table[name] for name in wanted}
