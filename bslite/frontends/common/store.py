"""The model under construction, and which constants it holds already."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable
from typing import Generic

from bslite.frontends.common.values import Const, Data, Value
from bslite.spec import Array, GraphBuilder


class Store(ABC, Generic[Data]):
    """A GraphBuilder that stores each constant once. Computed constants do not use the keys in ``taken``."""

    def __init__(self, builder: GraphBuilder, taken: Collection[str] = ()) -> None:
        self.builder = builder
        self._taken = taken
        self._keys: dict[Hashable, str] = {}  # by identity
        self._kept: list[Data] = []  # so that no other constant gets the same identity
        self._values: dict[str, Value] = {}  # of constants, by key

    @abstractmethod
    def identity(self, data: Data) -> Hashable:
        """A key that is equal for two constants that share their memory."""

    @abstractmethod
    def array(self, const: Const[Data]) -> Array:
        """The constant as the model stores it; an error if it has a dtype that bslite lacks."""

    @abstractmethod
    def constant(self, key: str, const: Const[Data]) -> Value:
        """Append the node that makes a stored constant a value."""

    def param(self, const: Const[Data]) -> str:
        """Store a constant and return its key."""
        identity = self.identity(const.data)
        key = self._keys.get(identity) or self._new_key(const.key)
        if key not in self.builder.params:
            self.builder.params[key] = self.array(const)
            self._kept.append(const.data)
            self._keys[identity] = key
        return key

    def known(self, const: Const[Data]) -> Value:
        """A constant as a value."""
        key = self.param(const)
        if key not in self._values:
            self._values[key] = self.constant(key, const)
        return self._values[key]

    def _new_key(self, key: str) -> str:
        unique, count = key, 1
        while unique in self._taken or unique in self.builder.params:
            count += 1
            unique = f"{key}#{count}"
        return unique
