"""The oracle: runs a ModelSpec one layer at a time with the plain functions of this folder."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bslite.errors import InputError, IntegerRangeError
from bslite.reference.registry import FUNCTIONS, Array, floating
from bslite.spec import ModelSpec, Node


def in_precision(x: Array, dtype: npt.DTypeLike) -> Array:
    """Floating-point numbers in ``dtype``; integers and bools as they are."""
    return np.asarray(x, dtype if x.dtype.kind == "f" else x.dtype)


def call(
    op: str,
    inputs: Sequence[Array],
    params: Mapping[str, Array],
    attrs: Mapping[str, Any],
    dtype: npt.DTypeLike,
) -> Array:
    """One op's value, floating-point numbers in ``dtype``."""
    given = {role: in_precision(array, dtype) for role, array in params.items()}
    with np.errstate(all="ignore"):  # NaN and Inf propagate, silently, as in the engines
        made = FUNCTIONS[op](*(in_precision(x, dtype) for x in inputs), **given, **attrs)
    return in_precision(made, dtype)


def to_bfloat16(x: Array) -> Array:
    """float32 numbers, each the nearest bfloat16, of two the even one; as they are where that is infinite."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    near = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) & np.uint32(0xFFFF0000)
    made = near.view(np.float32)
    return np.where(np.isfinite(made), made, x)


def layers(
    spec: ModelSpec, inputs: Sequence[Array], dtype: npt.DTypeLike = np.float64, rounded: bool = False
) -> Iterator[tuple[Node, Array]]:
    """Yield ``(node, value)`` for every layer in order, computed in ``dtype``; ``rounded``: in float32, and
    each value to bfloat16, as a machine has it that keeps values so.

    Values no later layer needs are dropped, so a caller that keeps none holds little memory.
    """
    dtype = floating(dtype)
    spec.infer_shapes([x.shape for x in inputs])
    values = {i.name: in_precision(x, dtype) for i, x in zip(spec.inputs, inputs, strict=True)}
    last_use = {name: index for index, node in enumerate(spec.nodes) for name in node.inputs}
    for index, node in enumerate(spec.nodes):
        try:
            value = call(node.op, [values[i] for i in node.inputs], spec.node_params(node), node.attrs, dtype)
        except InputError as e:
            message = f"layer {node.name!r}: {e}"
            if isinstance(e, IntegerRangeError):
                raise IntegerRangeError(message, node.name, e.number) from None
            raise InputError(message) from None
        if rounded and value.dtype.kind == "f":
            value = to_bfloat16(value)
        values[node.name] = value
        yield node, value
        for name in {*node.inputs, node.name}:
            if last_use.get(name, -1) <= index:
                del values[name]


def run(
    spec: ModelSpec,
    inputs: Sequence[Array],
    dtype: npt.DTypeLike = np.float64,
    on_layer: Callable[[Node], None] | None = None,
) -> list[Array]:
    """The model's outputs in ``dtype``, in the order of ``spec.outputs``."""
    wanted: dict[str, Array] = {
        i.name: in_precision(x, dtype) for i, x in zip(spec.inputs, inputs, strict=True)
    }
    wanted = {name: x for name, x in wanted.items() if name in spec.outputs}
    for node, value in layers(spec, inputs, dtype):
        if node.name in spec.outputs:
            wanted[node.name] = value
        if on_layer:
            on_layer(node)
    return [wanted[name] for name in spec.outputs]
