"""Tables in which each target has functions of its own for the same names."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")


def complete(table: Mapping[str, T], names: Iterable[str], whose: str) -> dict[str, T]:
    """``table``, a target's entry for each name, in the order of ``names``.

    Raises RuntimeError for a missing or an extra name.
    """
    wanted = list(names)
    if missing := sorted(set(wanted) - set(table)):
        raise RuntimeError(f"the {whose} has no function for {', '.join(missing)}, which the contract names")
    if extra := sorted(set(table) - set(wanted)):
        raise RuntimeError(f"the {whose} has functions that the contract does not name: {', '.join(extra)}")
    return {name: table[name] for name in wanted}
