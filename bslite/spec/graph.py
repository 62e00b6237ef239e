"""The data of a model: a graph of named ops with parameters, validated on construction."""

import dataclasses
import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from bslite import ops
from bslite.errors import InputError, SpecError
from bslite.ops import Shape
from bslite.spec.kinds import check_kind, items
from bslite.spec.ports import drawn

Array = npt.NDArray[Any]
G = TypeVar("G", bound="Graph")
LARGEST = 2**63 - 1  # size that a file holds
MOST_INFERRED = 4  # input shapes for which the shapes of all values are kept


@dataclass(frozen=True)
class Input:
    """A model input. ``shape`` mixes fixed sizes with names of free ones: ``("N", 3, "H", "W")``.

    ``example`` is one concrete shape, used to validate the graph when it is built and to print it. A free
    size called ``"N"`` may be left to default to 1.
    """

    name: str
    shape: tuple[int | str, ...]
    example: Shape = ()
    dtype: str = "float32"

    def __post_init__(self) -> None:
        check_kind(self.name, str, "an input's name")
        object.__setattr__(self, "shape", items(self.shape, f"input {self.name!r}: the shape"))
        if self.dtype not in ops.DTYPES:
            raise SpecError(f"input {self.name!r}: dtype {self.dtype!r} is not one of {list(ops.DTYPES)}")
        for d in self.shape:
            if isinstance(d, bool) or not isinstance(d, (int, str)) or (isinstance(d, int) and d < 1):
                raise SpecError(f"input {self.name!r}: size {d!r} is neither a positive integer nor a name")
        if not self.example:
            free = sorted({d for d in self.shape if isinstance(d, str) and d != "N"})
            if free:
                names = ", ".join(free)
                raise SpecError(f"input {self.name!r}: give an example shape for the free sizes {names}")
            filled = tuple(d if isinstance(d, int) else 1 for d in self.shape)
            object.__setattr__(self, "example", filled)
        what = f"input {self.name!r}: the example"
        try:
            object.__setattr__(self, "example", tuple(map(operator.index, items(self.example, what))))
        except TypeError:
            raise SpecError(f"{what} is {self.example!r:.200}, expected sizes") from None
        if max(self.example, default=0) > LARGEST:
            raise SpecError(f"input {self.name!r}: example {list(self.example)}, expected at most {LARGEST}")
        self.bind(self.example, {})

    @property
    def wants(self) -> str:
        """The shape it takes, for messages."""
        return "[" + ", ".join(map(str, self.shape)) + "]"

    def draw(self, rng: np.random.Generator, shape: Shape) -> Array:
        """Normal noise of this shape; of integers 0 and 1, which are within the range of any table."""
        return drawn(self.dtype, rng, shape)

    def bind(self, shape: Shape, sizes: dict[str, int]) -> None:
        """Check a concrete ``shape`` and note the free sizes in ``sizes``. Raises InputError."""
        if len(shape) != len(self.shape):
            raise InputError(
                f"input {self.name!r}: got rank {len(shape)} {list(shape)}, expected {self.wants}"
            )
        for axis, (got, want) in enumerate(zip(shape, self.shape, strict=True)):
            if got < 1:
                raise InputError(
                    f"input {self.name!r}: size {got} at axis {axis} of {list(shape)}; "
                    f"expected {self.wants}, none of them empty"
                )
            if isinstance(want, str):
                want = sizes.setdefault(want, got)
            if got != want:
                raise InputError(
                    f"input {self.name!r}: got {list(shape)}, expected {self.wants}; "
                    f"axis {axis} is {got}, should be {want}"
                )


@dataclass(frozen=True)
class Node:
    """One op in the graph. Its name, the user's layer path, is also the name of the value it makes.

    ``inputs`` names graph inputs or earlier nodes; ``params`` maps the op's parameter roles to keys of
    ``ModelSpec.params`` (two nodes may share a key: shared weights).
    """

    name: str
    op: str
    inputs: tuple[str, ...] = ()
    params: Mapping[str, str] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_kind(self.name, str, "a layer's name")
        object.__setattr__(self, "inputs", items(self.inputs, f"layer {self.name!r}: inputs"))
        for what in ("params", "attrs"):
            check_kind(getattr(self, what), Mapping, f"layer {self.name!r}: {what}")
        object.__setattr__(self, "params", MappingProxyType(dict(self.params)))
        try:
            parsed = ops.parse_attrs(ops.get(self.op), self.attrs)
        except SpecError as e:
            raise SpecError(f"layer {self.name!r}: {e}") from None
        object.__setattr__(self, "attrs", MappingProxyType(parsed))

    def __reduce__(self) -> Any:  # a MappingProxyType does not pickle
        return Node, (self.name, self.op, self.inputs, dict(self.params), dict(self.attrs))

    @functools.cached_property
    def declaration(self) -> ops.Op:
        """The op's declaration in `bslite.ops`."""
        return ops.get(self.op)

    @functools.cached_property
    def given(self) -> Mapping[str, str]:
        """Role -> name of the value, for parameters that are values: the last of its inputs."""
        roles = self.declaration.given(len(self.inputs))
        return dict(zip(roles, self.inputs[len(self.inputs) - len(roles) :], strict=True))


def _read_only(array: Any) -> Any:
    """A view that cannot be written through: engines pack parameters once and would not notice."""
    if isinstance(array, np.ndarray):
        array = array.view()
        array.setflags(write=False)
    return array


@dataclass(frozen=True, eq=False)
class Graph:
    """The data of a model: inputs, nodes in topological order, names of the outputs, a store of parameters.

    Users meet it as `ModelSpec`, which adds the file and the printed table. Raises SpecError on construction
    if a name is repeated or unknown, or if an op's arity, parameters, attributes or shapes do not fit; the
    message names the layer.
    """

    name: str
    inputs: tuple[Input, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    params: Mapping[str, Array]
    #: What the outputs are called where the model comes from; by default the names of their layers.
    labels: tuple[str, ...] = ()
    #: Tensors of a torch module that share their memory with parameters: engines look whether they changed.
    owners: tuple[Any, ...] = field(default=(), repr=False)
    #: A model that holds the same parameters: engines share what they pack of them.
    shares: "Graph | None" = field(default=None, repr=False)
    #: Of a model in bfloat16: the parameters that are float32 where it comes from. Products of all others may
    #: be of bfloat16 numbers at every precision but "ieee". None: a model in float32.
    unrounded: "frozenset[str] | None" = field(default=None, repr=False)
    #: dtype of every value, by name
    dtypes: Mapping[str, str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_kind(self.name, str, "a model's name")
        check_kind(self.params, Mapping, f"model {self.name!r}: params")
        object.__setattr__(self, "labels", self.labels or self.outputs)
        for name, kind in (("inputs", Input), ("nodes", Node), ("outputs", str), ("labels", str)):
            held = items(getattr(self, name), f"model {self.name!r}: {name}")
            for item in held:
                check_kind(item, kind, f"model {self.name!r}: each of its {name}")
            object.__setattr__(self, name, held)
        store = {key: _read_only(array) for key, array in self.params.items()}
        object.__setattr__(self, "params", MappingProxyType(store))
        self._check_names()
        self._check_params()
        object.__setattr__(self, "dtypes", MappingProxyType(self._infer_dtypes()))
        self.infer_shapes([i.example for i in self.inputs])

    def __reduce__(self) -> Any:  # to pickle and copy the description, not what engines keep on it
        return type(self), (self.name, self.inputs, self.nodes, self.outputs, dict(self.params), self.labels)

    def _check_names(self) -> None:
        if not self.inputs:
            raise SpecError(f"model {self.name!r} has no input")
        if not self.outputs:
            raise SpecError(f"model {self.name!r} has no output")
        known: set[str] = set()
        items: list[tuple[str, tuple[str, ...]]] = [(i.name, ()) for i in self.inputs]
        for name, sources in [*items, *((n.name, n.inputs) for n in self.nodes)]:
            if not name:
                raise SpecError(f"model {self.name!r}: an input or a layer has an empty name")
            for source in sources:
                if source not in known:
                    raise SpecError(
                        f"layer {name!r} reads {source!r}, which is neither an input nor an earlier layer"
                    )
            if name in known:
                raise SpecError(f"the name {name!r} is used twice")
            known.add(name)
        for out in self.outputs:
            if out not in known:
                raise SpecError(f"output {out!r} is not a layer of the model")
        if len(self.labels) != len(self.outputs):
            raise SpecError(
                f"model {self.name!r} has {len(self.outputs)} outputs and {len(self.labels)} labels of them"
            )
        first = dict(zip(reversed(self.labels), reversed(self.outputs), strict=True))
        for label, out in zip(self.labels, self.outputs, strict=True):
            if first[label] != out:
                raise SpecError(f"outputs {first[label]!r} and {out!r} have one label, {label!r}")

    def _check_params(self) -> None:
        for node in self.nodes:
            for role, key in node.params.items():
                array = self.params.get(key)
                if array is None:
                    raise SpecError(
                        f"layer {node.name!r}: parameter {role!r} is {key!r}, which the model does not hold"
                    )
                if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
                    raise SpecError(f"parameter {key!r} is a {type(array).__name__}, expected a numpy array")
                if array.dtype.name not in ops.DTYPES or not array.dtype.isnative:
                    raise SpecError(f"parameter {key!r} is {array.dtype}, expected {' or '.join(ops.DTYPES)}")

    def _infer_dtypes(self) -> dict[str, str]:
        dtypes = {i.name: i.dtype for i in self.inputs}
        for node in self.nodes:
            params = {role: self.params[key].dtype.name for role, key in node.params.items()}
            try:
                dtypes[node.name] = node.declaration.dtype(
                    [dtypes[i] for i in node.inputs], params, node.attrs
                )
            except SpecError as e:
                raise SpecError(f"layer {node.name!r}: {e}") from None
            except (IndexError, KeyError):
                dtypes[node.name] = "float32"  # too few inputs or parameters: the shape rule will say so
        return dtypes

    def infer_shapes(self, inputs: Sequence[Shape]) -> dict[str, Shape]:
        """Shape of every value, by name, for concrete input shapes.

        Raises InputError where an input does not fit its declaration, SpecError where a layer cannot take
        what reaches it.
        """
        key = tuple(map(tuple, inputs))
        known: dict[Any, dict[str, Shape]] = self.__dict__.setdefault("_inferred", {})
        if key not in known:
            made = self._infer_shapes(inputs)
            while len(known) >= MOST_INFERRED:
                known.pop(next(iter(known)), None)
            known[key] = made
            return dict(made)
        return dict(known[key])

    def _infer_shapes(self, inputs: Sequence[Shape]) -> dict[str, Shape]:
        if len(inputs) != len(self.inputs):
            raise InputError(f"model {self.name!r} takes {len(self.inputs)} input(s), got {len(inputs)}")
        sizes: dict[str, int] = {}
        shapes: dict[str, Shape] = {}
        for declared, shape in zip(self.inputs, inputs, strict=True):
            declared.bind(tuple(shape), sizes)
            shapes[declared.name] = tuple(shape)
        for node in self.nodes:
            try:
                shapes[node.name] = ops.infer(
                    node.declaration, [shapes[i] for i in node.inputs], self.param_shapes(node), node.attrs
                )
            except SpecError as e:
                raise SpecError(f"layer {node.name!r}: {e}") from None
        return shapes

    def param_shapes(self, node: Node) -> dict[str, Shape]:
        """Role -> shape of one node's parameters."""
        known: dict[str, tuple[Node, dict[str, Shape]]] = self.__dict__.setdefault("_param_shapes", {})
        found = known.get(node.name)
        if found is None or found[0] is not node:
            shapes = {role: self.params[key].shape for role, key in node.params.items()}
            found = known[node.name] = node, shapes
        return found[1]

    def node_params(self, node: Node) -> dict[str, Array]:
        """Role -> array of one node's parameters."""
        return {role: self.params[key] for role, key in node.params.items()}

    def replace(self: G, **changes: Any) -> G:
        """A copy with some fields changed, validated anew."""
        return dataclasses.replace(self, **changes)

    def __repr__(self) -> str:
        count = sum(p.size for p in self.params.values())
        kind, millions = type(self).__name__, count / 1e6
        return f"<{kind} {self.name!r}: {len(self.nodes)} layers, {millions:.2f} M parameters>"
