"""The arrays that an ONNX file's own constants make, kept with the file: all models made of it share them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bslite.frontends.onnx.broadcasts import repeats
from bslite.frontends.onnx.values import Const
from bslite.spec import Array


class Memo:
    """Initialisers, and results of nodes of the top-level graph that read nothing else.

    They depend on no input and no size, so a file that is read for many sizes decodes and computes them once,
    and the models of all sizes hold the same arrays.
    """

    def __init__(self) -> None:
        self._stable: dict[int, Array] = {}  # by id; kept so that no other array gets the same one
        self._tensors: dict[str, Const] = {}
        self._made: dict[str, tuple[tuple[Any, ...], tuple[Const | None, ...]]] = {}
        self._derived: dict[tuple[int, Any], Array] = {}

    def tensor(self, name: str, make: Callable[[], Array]) -> Const:
        """The initialiser ``name`` of the top-level graph."""
        if name not in self._tensors:
            self._tensors[name] = self._keep(Const(make(), name))
        return self._tensors[name]

    def find(self, node: Any, inputs: Sequence[Any], used: Sequence[bool]) -> tuple[Const | None, ...] | None:
        """The outputs of a node of the top-level graph, if it made them of the same arrays before."""
        key, made = self._made.get(_name(node), (None, None))
        return made if key is not None and key == self._key(inputs, used) else None

    def keep(self, node: Any, inputs: Sequence[Any], used: Sequence[bool], made: Sequence[Any]) -> list[Any]:
        """The outputs ``made``, which are kept if they depend on the file alone."""
        key = self._key(inputs, used)
        if key is None or not all(x is None or isinstance(x, Const) for x in made):
            return list(made)
        kept = tuple(None if x is None else self._keep(x) for x in made)
        self._made[_name(node)] = key, kept
        return list(kept)

    def adopt(self, const: Const) -> Const:
        """A constant that outlives the reading of one size, as an initialiser does."""
        return self._keep(const)

    def derived(self, array: Array, key: Any, make: Callable[[Array], Array]) -> Array:
        """What ``make`` makes of an array; the same one each time, under ``key``, of one that is kept."""
        if id(array) not in self._stable:
            return make(array)
        if (id(array), key) not in self._derived:
            self._derived[id(array), key] = make(array)
        return self._derived[id(array), key]

    def _key(self, inputs: Sequence[Any], used: Sequence[bool]) -> tuple[Any, ...] | None:
        if not all(x is None or (isinstance(x, Const) and id(x.data) in self._stable) for x in inputs):
            return None
        return (*(None if x is None else (id(x.data), x.key) for x in inputs), tuple(used))

    def _keep(self, const: Const) -> Const:
        if id(const.data) not in self._stable:
            if not (const.data.flags.c_contiguous or repeats(const.data)):
                const = Const(np.ascontiguousarray(const.data), const.key)
            self._stable[id(const.data)] = const.data
        return const


def _name(node: Any) -> str:
    return next((str(out) for out in node.output if out), "")
