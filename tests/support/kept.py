"""What a model keeps for other sizes, with less room than users have."""

from collections.abc import Iterable

import pytest

from bslite import cache


def with_room(monkeypatch: pytest.MonkeyPatch, operations: int) -> None:
    """Have models made from now on keep what has so many operations, all together."""
    monkeypatch.setattr(cache, "MAX_OPERATIONS", operations)


def is_full(operations: Iterable[int]) -> bool:
    """Whether what is kept, of so many operations each, fills the room and is not more than that."""
    taken = [cache.APART + n for n in operations]
    return sum(taken) <= cache.MAX_OPERATIONS < sum(taken) + max(taken)
