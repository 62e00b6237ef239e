"""`Draft`: a model while passes rewrite it in place; nodes that nothing reads any more fall away at once."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, cast

import numpy as np

from bslite.cache import Derived
from bslite.errors import BsliteError
from bslite.ops import Shape, infer
from bslite.passes.rewrite import needed, params_of
from bslite.spec import Array, ModelSpec, Node

#: Ways to change the free sizes of a model, to learn which sizes depend on them.
CHANGES = (lambda n, i: n * (2 + i), lambda n, i: 2 * n, lambda n, i: n + 1, lambda n, i: max(1, n // 2))
OPEN = 2**31 - 1  # the end of a slice that goes to the end of the axis, and all numbers beyond


class Draft:
    """The nodes that the outputs need, by name in topological order, who reads what, and sizes at several
    sizes of the inputs.

    ``derived`` keeps the parameters that passes make.
    """

    def __init__(self, spec: ModelSpec, derived: Derived | None = None) -> None:
        self.spec, self.derived = spec, derived or Derived()
        self.nodes = {n.name: n for n in needed(spec.nodes, spec.outputs)}
        self.place: dict[str, float] = {name: i for i, name in enumerate(self.nodes)}
        self.dtypes = dict(spec.dtypes)
        self.outputs = frozenset(spec.outputs)
        self.changed = len(self.nodes) < len(spec.nodes)
        self.params: dict[str, Array] = {}
        self._pending: dict[str, tuple[Any, Sequence[Array]]] = {}
        self.reading: dict[str, dict[str, None]] = {}
        for node in self.nodes.values():
            self._note(node)

    def _note(self, node: Node) -> None:
        for name in node.inputs:
            self.reading.setdefault(name, {})[node.name] = None

    @cached_property
    def shapes(self) -> list[dict[str, Shape]]:
        """Every value's shape: for the example inputs, and with free sizes changed.

        What is true of all of them is taken to be true at any size.
        """
        return shapes_at_several_sizes(self.spec)

    @cached_property
    def varied(self) -> bool:
        """Whether each free size was tried with others in `shapes`, and apart from the other free sizes. Of
        sizes that were not, one may be broadcast to another where it is one.
        """
        tried: dict[str, tuple[int, ...]] = {}
        for i in self.spec.inputs:
            for axis, d in enumerate(i.shape):
                if isinstance(d, str):
                    tried[d] = tuple(shapes[i.name][axis] for shapes in self.shapes)
        return len(set(tried.values())) == len(tried) and all(len(set(sizes)) > 1 for sizes in tried.values())

    def shape(self, name: str) -> Shape:
        """The value's shape for the example inputs."""
        return self.shapes[0][name]

    def alike(self, *names: str) -> bool:
        """Whether the values have one shape, at any size."""
        return all(len({shapes[name] for name in names}) == 1 for shapes in self.shapes)

    def fixed(self, name: str, axes: Sequence[int]) -> Shape | None:
        """The value's sizes at ``axes``, or None if they depend on the sizes of the inputs."""
        found = {tuple(shapes[name][axis] for axis in axes) for shapes in self.shapes}
        return found.pop() if len(found) == 1 else None

    def left_out(self, node: Node) -> tuple[int, int] | None:
        """The elements in front and behind that a slice of positive step leaves out, if these are as many at
        any size.
        """
        axis, start, stop = node.attrs["axis"], node.attrs["start"], node.attrs["stop"]
        sizes = {shapes[node.inputs[0]][axis] for shapes in self.shapes}
        fixed = stop is not None and 0 <= stop < OPEN
        if len(sizes) > 1 and (start < 0 or fixed):
            return None  # a place that no size tried here reaches
        found = set()
        for size in sizes:
            first, last, _ = slice(start, stop, node.attrs["step"]).indices(size)
            found.add((first, size - last))
        return found.pop() if len(found) == 1 else None

    def constant(self, name: str) -> Array | None:
        """The value, if it is a constant of float32."""
        node = self.nodes.get(name)
        if node is None or node.op != "constant":
            return None
        value = self.param(node.params["value"])
        return value if value.dtype == np.float32 else None

    def number(self, name: str) -> float | None:
        """The value, if it is a constant of one element."""
        value = self.constant(name)
        return float(value.reshape(())) if value is not None and value.size == 1 else None

    def param(self, key: str) -> Array:
        """A parameter of the model, or one that a pass made."""
        return self.params[key] if key in self.params else self.spec.params[key]

    def derive(self, key: str, what: Any, sources: Sequence[Array], make: Callable[[], Array]) -> Array:
        """A new parameter ``key``: the array ``what`` of ``sources``, shared among models that hold those."""
        self.params[key] = found = self.derived.get(what, sources, make)
        return cast(Array, found)

    def hold(self, key: str, what: Any, sources: Sequence[Array], value: Array) -> None:
        """A new parameter ``key`` that others may yet replace: ``derived`` keeps it only if it stays."""
        self.params[key] = value
        self._pending[key] = what, sources

    def held(self, key: str) -> tuple[Any, Sequence[Array]] | None:
        """What ``hold`` was told of the parameter, if it made it."""
        return self._pending.get(key)

    def alone(self, name: str) -> Node | None:
        """The node that makes the value, if exactly one node reads it and it is no output."""
        readers = self.reading.get(name, {})
        return self.nodes.get(name) if len(readers) == 1 and name not in self.outputs else None

    def put(self, node: Node, *before: Node) -> None:
        """Let ``node`` make the value of its name, with the new nodes ``before`` in front of it.

        ``node`` reads values that stand before the one it replaces, which ``before`` may make. One of those
        whose name the model has already gets another one.
        """
        names = {new.name: self.unused(new.name) for new in before}
        if any(name != new for name, new in names.items()):
            node, before = _renamed(node, names), tuple(_renamed(n, names) for n in before)
        old = self.nodes[node.name]
        end, read = self.place[node.name], [name for n in (node, *before) for name in n.inputs]
        start = max((self.place[name] for name in read if name in self.place), default=end - 1)
        for i, new in enumerate(before, start=1):
            self.place[new.name] = start + (end - start) * i / (len(before) + 1)
            self.nodes[new.name] = new
            self._infer(new)
            self._note(new)
        self.nodes[node.name] = node
        self._note(node)
        self._unread(old, set(node.inputs))
        self.changed = True

    def unused(self, name: str, others: Sequence[str] = ()) -> str:
        """``name``, or one made of it that neither the model nor ``others`` have."""
        while name in self.nodes or name in self.shapes[0] or name in others:
            name += "/new"
        return name

    def _infer(self, node: Node) -> None:
        params = {role: self.param(key) for role, key in node.params.items()}
        dtypes = {role: array.dtype.name for role, array in params.items()}
        op, sizes = node.declaration, {role: array.shape for role, array in params.items()}
        self.dtypes[node.name] = op.dtype([self.dtypes[i] for i in node.inputs], dtypes, node.attrs)
        for shapes in self.shapes:
            shapes[node.name] = infer(op, [shapes[i] for i in node.inputs], sizes, node.attrs)

    def bypass(self, node: Node, source: str) -> None:
        """Let the readers of ``node``, which is no output, read ``source`` instead."""
        for name in list(self.reading.pop(node.name, {})):
            reader = self.nodes[name]
            inputs = tuple(source if x == node.name else x for x in reader.inputs)
            self.nodes[name] = Node(name, reader.op, inputs, reader.params, reader.attrs)
            self._note(self.nodes[name])
        del self.nodes[node.name]
        self._unread(node, set())
        self.changed = True

    def _unread(self, reader: Node, still: set[str]) -> None:
        """Forget that ``reader`` reads its inputs, those ``still`` read excepted."""
        for name in set(reader.inputs) - still:
            readers = self.reading[name]
            readers.pop(reader.name, None)
            node = self.nodes.get(name)
            if readers or node is None or name in self.outputs:
                continue
            del self.nodes[name]
            self._unread(node, set())

    def spec_now(self) -> ModelSpec:
        """The model as it is now."""
        if not self.changed:
            return self.spec
        nodes = sorted(self.nodes.values(), key=lambda n: self.place[n.name])
        stay = {key for node in nodes for key in node.params.values()} & self._pending.keys()
        for key in sorted(stay):
            what, sources = self._pending.pop(key)
            self.derive(key, what, sources, partial(self.params.__getitem__, key))
        return self.spec.replace(
            nodes=tuple(nodes), params=params_of(nodes, {**self.spec.params, **self.params})
        )


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    inputs = tuple(names.get(name, name) for name in node.inputs)
    return Node(names.get(node.name, node.name), node.op, inputs, node.params, node.attrs)


def shapes_at_several_sizes(spec: ModelSpec) -> list[dict[str, Shape]]:
    """Shapes of all values for the example inputs; then for others, together as different as the model takes.

    A free size that the model takes in one size alone counts as fixed.
    """
    found = [spec.infer_shapes([i.example for i in spec.inputs])]
    sizes: dict[str, int] = {}
    for i in spec.inputs:
        sizes |= {d: n for d, n in zip(i.shape, i.example, strict=True) if isinstance(d, str)}
    names = list(sizes)
    if names and not _also(spec, sizes, names, found):
        for name in names:
            _also(spec, sizes, [name], found)
    return found


def _also(spec: ModelSpec, sizes: dict[str, int], names: list[str], found: list[dict[str, Shape]]) -> bool:
    """Add the shapes with the sizes ``names`` changed; whether the model takes one of the changes."""
    for change in CHANGES:
        new = sizes | {name: change(sizes[name], i) for i, name in enumerate(names)}
        if any(new[name] == sizes[name] for name in names):
            continue
        inputs = [tuple(new[d] if isinstance(d, str) else d for d in i.shape) for i in spec.inputs]
        if max(map(math.prod, inputs), default=0) > 2**40:
            continue
        try:
            found.append(spec.infer_shapes(inputs))
        except BsliteError:
            continue
        return True
    return False
