"""The inputs of an ONNX graph that a caller gives: dtypes, sizes, labels of open sizes, examples of them."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bslite import ops
from bslite.errors import InputError, UnsupportedError
from bslite.frontends.onnx.file import Source
from bslite.frontends.onnx.tensors import dtype_name, sizes
from bslite.ops import Shape

#: What open sizes other than the batch are tried as where the caller gives no example: images, tokens, sound.
#: The first ones suit networks that halve an image several times.
EXAMPLES = (64, 224, 320, 48, 16, 512, 16000, 8, 3, 1)
#: What exporters write that says no more than an absent label.
NO_LABEL = ("", "?", "-1", "None", "none")


@dataclass(frozen=True)
class GraphInput:
    """An input as the file declares it: sizes, or labels of free ones; None where it does not say the shape.

    A size without a label (``?``, -1 and 0 say nothing either) is labelled by its place.
    """

    name: str
    shape: tuple[int | str, ...] | None
    dtype: str

    def wants(self) -> str:
        """The shape it takes, for messages."""
        return "[...]" if self.shape is None else f"[{', '.join(map(str, self.shape))}]"


def graph_inputs(source: Source, built_in: Collection[str] = ()) -> list[GraphInput]:
    """The inputs that a caller has to give: no initialisers, and none that is ``built_in``.

    InputError if the model lacks one that is to be built in.
    """
    graph = source.model.graph
    stored = {t.name for t in graph.initializer}
    given = [v for v in graph.input if v.name not in stored]
    check_names(source, [v.name for v in given], built_in)
    return [_declared(source, v) for v in given if v.name not in built_in]


def has_open_sizes(source: Source) -> bool:
    """Whether the sizes of an input, of whatever type, are not all in the file."""
    graph = source.model.graph
    stored = {t.name for t in graph.initializer}
    types = [v.type for v in graph.input if v.name not in stored]
    return any(
        not t.HasField("tensor_type")
        or not t.tensor_type.HasField("shape")
        or any(d.dim_value < 1 for d in t.tensor_type.shape.dim)
        for t in types
    )


def _declared(source: Source, v: Any) -> GraphInput:
    kind = v.type.WhichOneof("value")
    dtype = dtype_name(v.type.tensor_type.elem_type) if kind == "tensor_type" else str(kind)
    if dtype not in ops.DTYPES:
        raise UnsupportedError(
            f"model {source.name!r}: input {v.name!r} is {dtype or 'of an unknown type'}; "
            f"bslite has {', '.join(ops.DTYPES)}"
        )
    if not v.type.tensor_type.HasField("shape"):
        return GraphInput(v.name, None, dtype)
    dims = v.type.tensor_type.shape.dim
    sizes([d.dim_value for d in dims if d.dim_value != -1], f"input {v.name!r}")
    known = [d.dim_value if d.HasField("dim_value") and d.dim_value > 0 else d.dim_param for d in dims]
    return labelled(v.name, known, dtype)


def labelled(name: str, shape: Sequence[int | str | None] | None, dtype: str) -> GraphInput:
    """An input whose sizes without a label are labelled by their places."""
    if shape is None:
        return GraphInput(name, None, dtype)
    sizes = (f"{name}.{axis}" if d is None or d in NO_LABEL else d for axis, d in enumerate(shape))
    return GraphInput(name, tuple(sizes), dtype)


def check_names(source: Source, known: Collection[str], given: Iterable[str]) -> None:
    """InputError if something is given for an input that the model lacks."""
    if unknown := sorted(set(given) - set(known)):
        raise InputError(f"model {source.name!r} has no input {', '.join(map(repr, unknown))}")


def check_constants(source: Source, constants: Mapping[str, Any]) -> None:
    """InputError unless arrays that are built in have the types and the sizes that the file declares."""
    if not isinstance(constants, Mapping):
        raise InputError(f"constants: a {type(constants).__name__}, expected input name -> array")
    for v in source.model.graph.input:
        array, kind = constants.get(v.name), v.type.tensor_type
        if array is None:
            continue
        what = f"the constant for input {v.name!r}"
        if not isinstance(array, np.ndarray):
            raise InputError(f"{what} is a {type(array).__name__}; expected a numpy array")
        dtype = dtype_name(kind.elem_type)
        if dtype in ops.DTYPES and array.dtype != np.dtype(dtype):
            raise InputError(f"{what} is {array.dtype}, expected {dtype}")
        if kind.HasField("shape"):
            want = [d.dim_value if d.dim_value > 0 else d.dim_param or "?" for d in kind.shape.dim]
            fits = len(want) == array.ndim and all(
                not isinstance(n, int) or n == got for n, got in zip(want, array.shape, strict=True)
            )
            if not fits:
                raise InputError(f"{what} is {list(array.shape)}, expected [{', '.join(map(str, want))}]")


def check_shapes(declared: Sequence[GraphInput], shapes: Sequence[Shape]) -> None:
    """InputError unless the shapes have the ranks and the fixed sizes that the file declares."""
    for i, shape in zip(declared, shapes, strict=True):
        if i.shape is None:
            continue
        if len(shape) != len(i.shape):
            raise InputError(f"input {i.name!r}: got rank {len(shape)} {list(shape)}, expected {i.wants()}")
        for axis, (want, got) in enumerate(zip(i.shape, shape, strict=True)):
            if isinstance(want, int) and want != got:
                raise InputError(
                    f"input {i.name!r}: got {list(shape)}, expected {i.wants()}; "
                    f"axis {axis} is {got}, should be {want}"
                )


def check_example(declared: GraphInput, example: Sequence[int], known: dict[str, int]) -> Shape:
    """The example's shape; its free sizes are noted in ``known``. InputError if it does not fit."""
    shape, name = sizes(tuple(example), f"the example of input {declared.name!r}"), declared.name
    if declared.shape is None:
        return shape
    if len(shape) != len(declared.shape):
        raise InputError(
            f"input {name!r} has {len(declared.shape)} dimensions, its example {list(shape)} has {len(shape)}"
        )
    for axis, (want, got) in enumerate(zip(declared.shape, shape, strict=True)):
        if got < 1:
            raise InputError(f"input {name!r}: size {got} at axis {axis} of its example {list(shape)}")
        if (known.setdefault(want, got) if isinstance(want, str) else want) != got:
            raise InputError(f"input {name!r}: the example {list(shape)} does not fit {declared.wants()}")
    return shape


def examples(
    declared: Sequence[GraphInput], shapes: Mapping[str, Sequence[int]], batch: int = 1
) -> Iterator[list[Shape]]:
    """Concrete shapes to try, in turns, of which those in ``shapes`` are given. InputError where those do not
    fit, or where one is not given and the file does not say the rank.
    """
    known: dict[str, int] = {}
    given = {i.name: check_example(i, shapes[i.name], known) for i in declared if i.name in shapes}
    for i in declared:
        if i.shape is None and i.name not in given:
            raise InputError(
                f"the model does not say the shape of its input {i.name!r}: "
                "give an example of it (shapes=, on the command line --shape)"
            )
    free: dict[str, bool] = {}  # label -> whether it stands at axis 0 first
    for i in declared:
        for axis, d in enumerate(i.shape or ()):
            if isinstance(d, str) and d not in known:
                free.setdefault(d, axis == 0)
    tries = [tuple(batch if first else size for first in free.values()) for size in EXAMPLES]
    tries += [(size,) * len(free) for size in EXAMPLES]
    for made in dict.fromkeys(tries):
        sizes_of = {**known, **dict(zip(free, made, strict=True))}
        yield [
            given[i.name]
            if i.name in given or i.shape is None
            else tuple(sizes_of[d] if isinstance(d, str) else d for d in i.shape)
            for i in declared
        ]
