"""The inputs of an ONNX graph that a caller gives: dtypes, fixed sizes, names and examples of free ones."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bslite import ops
from bslite.errors import InputError, UnsupportedError
from bslite.frontends.onnx.file import Source
from bslite.frontends.onnx.tensors import dtype_name, sizes
from bslite.spec import Array

BATCH = "N"


@dataclass(frozen=True)
class GraphInput:
    """An input of the graph: sizes or names of free ones, an example, a dtype."""

    name: str
    shape: tuple[int | str, ...]
    example: tuple[int, ...]
    dtype: str

    def fix(self, keep: Iterable[str]) -> "GraphInput":
        """This input with the free sizes that are not in ``keep`` fixed to the example's."""
        shape = tuple(
            d if isinstance(d, int) or d in keep else n for d, n in zip(self.shape, self.example, strict=True)
        )
        return GraphInput(self.name, shape, self.example, self.dtype)


def graph_inputs(
    source: Source, shapes: Mapping[str, Sequence[int]], constants: Mapping[str, Array]
) -> list[GraphInput]:
    """The inputs that a caller has to give: no initialisers, and none of ``constants``.

    InputError where a free size has no example in ``shapes``, or one that does not fit.
    """
    graph = source.model.graph
    stored = {t.name for t in graph.initializer}
    given = [v for v in graph.input if v.name not in stored]
    unknown = sorted({*shapes, *constants} - {v.name for v in given})
    if unknown:
        raise InputError(f"model {source.name!r} has no input {', '.join(map(repr, unknown))}")
    given = [v for v in given if v.name not in constants]
    dtypes = [_dtype(source, v) for v in given]
    examples = {name: sizes(tuple(s), f"the example of input {name!r}") for name, s in shapes.items()}
    names = Names()
    declared = [_shape(source, v, names, examples.get(v.name)) for v in given]
    known: dict[str, int] = {}  # free size -> the example's
    for v, shape in zip(given, declared, strict=True):
        _learn(v.name, shape, examples.get(v.name), known)
    known.setdefault(BATCH, 1)
    return [
        GraphInput(v.name, shape, _filled(source, v.name, shape, known), dtype)
        for v, shape, dtype in zip(given, declared, dtypes, strict=True)
    ]


class Names:
    """The file's names of free sizes, and bslite's: the first name at axis 0 is the batch, "N"."""

    def __init__(self) -> None:
        self.batch: str | None = None
        self.ours: dict[str, str] = {}

    def of(self, label: str, axis: int) -> str:
        """bslite's name for the size that the file calls ``label``."""
        if axis == 0 and self.batch is None:
            self.batch = label
        if label not in self.ours:
            name = BATCH if label == self.batch else label
            while name in self.ours.values() or (name == BATCH and label != self.batch):
                name += "_"
            self.ours[label] = name
        return self.ours[label]


def _dtype(source: Source, v: Any) -> str:
    kind = v.type.WhichOneof("value")
    dtype = dtype_name(v.type.tensor_type.elem_type) if kind == "tensor_type" else str(kind)
    if dtype not in ops.DTYPES:
        raise UnsupportedError(
            f"model {source.name!r}: input {v.name!r} is {dtype or 'of an unknown type'}; "
            f"bslite has {', '.join(ops.DTYPES)}"
        )
    return dtype


def _shape(source: Source, v: Any, names: Names, example: tuple[int, ...] | None) -> tuple[int | str, ...]:
    """Sizes and names of free ones; the example's sizes where the file says nothing at all."""
    if not v.type.tensor_type.HasField("shape"):
        if example is None:
            raise InputError(
                f"model {source.name!r} does not say the shape of its input {v.name!r}: "
                "give an example in shapes"
            )
        return example
    dims = v.type.tensor_type.shape.dim
    sizes([d.dim_value for d in dims if d.HasField("dim_value")], f"input {v.name!r}")
    return tuple(
        d.dim_value
        if d.HasField("dim_value")
        else names.of(d.dim_param or (BATCH if axis == 0 else f"{v.name}.{axis}"), axis)
        for axis, d in enumerate(dims)
    )


def _learn(
    name: str, shape: Sequence[int | str], example: Sequence[int] | None, known: dict[str, int]
) -> None:
    """Note the free sizes of an example. InputError if it does not fit."""
    if example is None:
        return
    if len(example) != len(shape):
        raise InputError(
            f"input {name!r} has {len(shape)} dimensions, its example {list(example)} has {len(example)}"
        )
    for want, got in zip(shape, example, strict=True):
        if (known.setdefault(want, got) if isinstance(want, str) else want) != got:
            raise InputError(f"input {name!r}: the example {list(example)} does not fit {list(shape)}")


def _filled(
    source: Source, name: str, shape: Sequence[int | str], known: Mapping[str, int]
) -> tuple[int, ...]:
    """The shape with the examples of its free sizes. InputError where there is none."""
    for axis, entry in enumerate(shape):
        if isinstance(entry, str) and entry not in known:
            raise InputError(
                f"input {name!r} of model {source.name!r} leaves the size {entry} at axis {axis} open: "
                f"give an example, shapes={{{name!r}: (...)}}"
            )
    return tuple(d if isinstance(d, int) else known[d] for d in shape)
