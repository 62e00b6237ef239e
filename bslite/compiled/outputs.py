"""`Outputs`: the results of one call, by name and by place."""

from collections.abc import Sequence
from typing import Any


class Outputs(dict[str, Any]):
    """Results by name, in the model's order: ``made["logits"]``, ``made[0]`` and ``made.logits`` are one.

    It is a dict in all else: iteration goes over names. `tuple` gives the values alone, and one
    that a model names twice twice.
    """

    #: The names by place where one stands twice.
    places: tuple[str, ...] = ()

    @classmethod
    def of(cls, names: Sequence[str], values: Sequence[Any]) -> "Outputs":
        """``values`` in the model's order under their names."""
        made = cls(zip(names, values, strict=True))
        if len(made) != len(names):
            made.places = tuple(names)
        return made

    def __getitem__(self, key: str | int) -> Any:
        if not isinstance(key, int):
            return super().__getitem__(key)
        values = self.tuple()
        try:
            return values[key]
        except IndexError:
            raise IndexError(f"there is no output {key}; there are {len(values)}") from None

    def __missing__(self, key: Any) -> Any:
        raise KeyError(f"there is no output {key!r}; there are {', '.join(self)}")

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(f"there is no output {name!r}; there are {', '.join(self)}")
        return super().__getitem__(name)

    def tuple(self) -> tuple[Any, ...]:
        """The values in the model's order."""
        return tuple(map(super().__getitem__, self.places)) if self.places else tuple(self.values())
