"""Enumerations that ops write as words and kernels as numbers."""

from enum import IntEnum
from typing import TypeVar

C = TypeVar("C", bound="Choice")


class Choice(IntEnum):
    """Base of these enumerations."""

    @property
    def word(self) -> str:
        """The member's name in lower case."""
        return self.name.lower()

    @classmethod
    def words(cls) -> tuple[str, ...]:
        """All words, in the order of the members."""
        return tuple(member.word for member in cls)

    @classmethod
    def of(cls: type[C], word: str) -> C:
        """The member with that word. Raises KeyError if there is none."""
        return cls[word.upper()]
