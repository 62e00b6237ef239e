"""Operands of builders: values of the model being built, and constants."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

#: Sizes of a value: an int where fixed, else what the frontend has for a free size; equal ones compare equal.
Dims = tuple[Any, ...]
Data = TypeVar("Data")


@dataclass(frozen=True, eq=False)
class Value:
    """A value of the model being built."""

    name: str
    shape: Dims
    dtype: str = "float32"

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass(frozen=True, eq=False)
class Const(Generic[Data]):
    """An array or tensor that is known while the model is read; ``key`` names it if the source stores it."""

    data: Data
    key: str

    @property
    def shape(self) -> Dims:
        shape: Any = self.data.shape  # type: ignore[attr-defined]
        return tuple(shape)

    @property
    def rank(self) -> int:
        return len(self.shape)
