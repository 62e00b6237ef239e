"""Nested arguments and results as a list of leaves and back: pytrees, and dataclasses unknown to torch."""

import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch.utils import _pytree as pytree


class Structure:
    """The result of a forward without its tensors. ``build(leaves)`` makes such a result of other tensors."""

    def __init__(self, result: Any, is_leaf: Callable[[Any], bool]) -> None:
        """``is_leaf(x)``: whether x is replaced by `build`; all other values stay as they are."""
        self.leaves: list[Any] = []
        self._build = self._read(result, is_leaf)
        self.single = is_leaf(result)

    def build(self, leaves: Sequence[Any]) -> Any:
        """The result with ``leaves`` in their places."""
        return self._build(iter(leaves))

    def _read(self, value: Any, is_leaf: Callable[[Any], bool]) -> Callable[[Iterator[Any]], Any]:
        if is_leaf(value):
            self.leaves.append(value)
            return next
        if dataclasses.is_dataclass(value) and not isinstance(value, type) and _is_plain(value):
            fields = {f.name: self._read(getattr(value, f.name), is_leaf) for f in dataclasses.fields(value)}
            shell = copy.copy(value)
            for name in fields:
                object.__setattr__(shell, name, None)

            def rebuild(leaves: Iterator[Any]) -> Any:
                made = copy.copy(shell)
                for name, build in fields.items():
                    object.__setattr__(made, name, build(leaves))
                return made

            return rebuild
        if _is_plain(value):
            return lambda leaves: value
        children, spec = pytree.tree_flatten(value, is_leaf=lambda x: x is not value)
        builds = [self._read(child, is_leaf) for child in children]
        return lambda leaves: pytree.tree_unflatten([build(leaves) for build in builds], spec)


def _is_plain(value: Any) -> bool:
    """Whether torch's pytrees take ``value`` for a leaf."""
    return bool(pytree.tree_is_leaf(value))
