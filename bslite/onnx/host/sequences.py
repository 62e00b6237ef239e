"""ONNX's sequences (lists of arrays) and optional values (None where there is none)."""

from typing import Any

import numpy as np

from bslite.errors import InputError
from bslite.onnx.host.node import host_op
from bslite.spec import Array

Sequence = list[Any]


def _place(position: Array | None, length: int, default: int, most: int) -> int:
    """A position as a non-negative index of at most ``most``; negative ones count from the end."""
    if position is None:
        return default
    at = int(position.item())
    if not -length <= at <= most:
        raise InputError(f"position {at} of a sequence of {length}")
    return at + length if at < 0 else at


@host_op("SequenceEmpty", first=True)
def empty(*, dtype: int | None) -> Sequence:
    """A sequence of nothing."""
    return []


@host_op("SequenceConstruct", first=True)
def construct(*xs: Array) -> Sequence:
    """A sequence of the inputs."""
    return list(xs)


@host_op("SequenceAt", first=True)
def at(xs: Sequence, position: Array) -> Array:
    """The element at a position."""
    element: Array = xs[_place(position, len(xs), 0, len(xs) - 1)]
    return element


@host_op("SequenceInsert", first=True)
def insert(xs: Sequence, x: Array, position: Array | None = None) -> Sequence:
    """A sequence with ``x`` put in before a position, or at the end."""
    place = _place(position, len(xs), len(xs), len(xs))
    return [*xs[:place], x, *xs[place:]]


@host_op("SequenceErase", first=True)
def erase(xs: Sequence, position: Array | None = None) -> Sequence:
    """A sequence without the element at a position, or without the last."""
    place = _place(position, len(xs), len(xs) - 1, len(xs) - 1)
    return [*xs[:place], *xs[place + 1 :]]


@host_op("SequenceLength", first=True)
def length(xs: Sequence) -> Array:
    """The number of elements."""
    return np.array(len(xs), np.int64)


@host_op("SplitToSequence", first=True)
def split(x: Array, parts: Array | None = None, *, axis: int, keepdims: int) -> Sequence:
    """Parts of the sizes given, or of one size; or single slices, whose axis stays for ``keepdims``."""
    size = x.shape[axis]
    if parts is None:
        pieces = np.split(x, size, axis)
        return [np.ascontiguousarray(p if keepdims else np.squeeze(p, axis)) for p in pieces]
    if parts.ndim:
        if parts.sum() != size or (parts < 0).any():
            raise InputError(f"parts of {parts.tolist()} along an axis of {size}")
        bounds = np.cumsum(parts)[:-1]
    else:
        if parts.item() < 1:
            raise InputError(f"parts of {parts.item()}")
        bounds = np.arange(parts.item(), size, parts.item())
    return [np.ascontiguousarray(p) for p in np.split(x, bounds, axis)]


@host_op("ConcatFromSequence", first=True)
def concat(xs: Sequence, *, axis: int, new_axis: int) -> Array:
    """The elements side by side along an axis, which is new for ``new_axis``."""
    return np.stack(xs, axis) if new_axis else np.concatenate(xs, axis)


@host_op("Optional", first=True)
def optional(x: Any = None) -> Any:
    """The input, or nothing."""
    return x


@host_op("OptionalHasElement", first=True)
def has_element(x: Any = None) -> Array:
    """Whether there is something."""
    return np.array(x is not None)


@host_op("OptionalGetElement", first=True)
def get_element(x: Any) -> Any:
    """What is there; an error if there is nothing."""
    if x is None:
        raise InputError("there is no element")
    return x


@host_op("ReverseSequence", first=False)
def reverse(x: Array, lengths: Array, *, batch_axis: int, time_axis: int) -> Array:
    """Each sequence's first elements, as many as its length, in reverse order."""
    moved = np.moveaxis(x, (batch_axis, time_axis), (0, 1))
    made = moved.copy()
    if lengths.shape != moved.shape[:1] or (lengths < 0).any() or (lengths > moved.shape[1]).any():
        raise InputError(f"lengths {lengths.tolist()} for sequences of {moved.shape[1]}")
    for n, count in enumerate(lengths):
        made[n, :count] = moved[n, :count][::-1]
    return np.ascontiguousarray(np.moveaxis(made, (0, 1), (batch_axis, time_axis)))
