"""Operators that pick and place elements, on values of types that the engine lacks."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from bslite.errors import InputError
from bslite.onnx.host.node import host_op
from bslite.spec import Array

PLACED: dict[str, Callable[..., Any]] = {
    "add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum,
}  # fmt: skip
#: ONNX's modes of Pad by NumPy's names.
PADDED = {"constant": "constant", "reflect": "reflect", "edge": "edge", "wrap": "wrap"}


def _inside(indices: Array, size: int) -> Array:
    """Indices as non-negative ones. InputError for one beyond ``size``."""
    if ((indices < -size) | (indices >= size)).any():
        raise InputError(f"an index is out of range for {size}")
    return np.where(indices < 0, indices + size, indices)


@host_op("GatherElements")
def gather_elements(x: Array, indices: Array, *, axis: int) -> Array:
    """``y[i][j] = x[indices[i][j]][j]`` for axis 0, and so on; other axes may be cut short."""
    at = axis % x.ndim
    cut = x[tuple(slice(None) if k == at else slice(n) for k, n in enumerate(indices.shape))]
    return np.take_along_axis(cut, _inside(indices, x.shape[at]), at)


@host_op("ScatterElements", "Scatter")
def scatter_elements(
    x: Array, indices: Array, updates: Array, *, axis: int, reduction: str = "none"
) -> Array:
    """A copy of ``x`` with ``updates`` put, or reduced into, where ``indices`` along ``axis`` say."""
    made, at = x.copy(), axis % x.ndim
    where: list[Array] = [*np.indices(indices.shape)]
    where[at] = _inside(indices, x.shape[at])
    return _put(made, tuple(where), updates, reduction)


@host_op("ScatterND")
def scatter_nd(x: Array, indices: Array, updates: Array, *, reduction: str = "none") -> Array:
    """A copy of ``x`` with slices put, or reduced into, where rows of ``indices`` say."""
    rows = np.moveaxis(indices, -1, 0)
    return _put(
        x.copy(), tuple(_inside(r, n) for r, n in zip(rows, x.shape, strict=False)), updates, reduction
    )


def _put(made: Array, where: tuple[Array, ...], updates: Array, reduction: str) -> Array:
    if reduction == "none":
        made[where] = updates
    elif reduction in PLACED:
        PLACED[reduction].at(made, where, updates)  # type: ignore[attr-defined]
    else:
        raise InputError(f"reduction {reduction!r}")
    return made


@host_op("OneHot")
def one_hot(indices: Array, depth: Array, values: Array, *, axis: int) -> Array:
    """``values[1]`` where the new axis' place is the index, else ``values[0]``."""
    size = int(depth.item() if depth.ndim == 0 else depth.reshape(-1)[0])
    places = np.arange(size).reshape(-1, *[1] * indices.ndim)
    found = np.where(indices < 0, indices + size, indices)[None] == places
    made = np.where(found, values[1], values[0]).astype(values.dtype)
    return np.ascontiguousarray(np.moveaxis(made, 0, axis if axis >= 0 else axis + made.ndim))


@host_op("TopK")
def top_k(
    x: Array, k: Any = None, *, axis: int, largest: int = 1, sorted: int = 1
) -> tuple[Array, Array]:  # fmt: skip
    """The ``k`` largest or smallest along ``axis`` in order, equal ones in theirs; and their places."""
    count = int(np.asarray(k).reshape(-1)[0])
    if not 0 <= count <= x.shape[axis]:
        raise InputError(f"{count} of {x.shape[axis]}")
    keys = x if not largest else (-x if x.dtype.kind == "f" else -x.astype(object))
    order = np.take(np.argsort(keys, axis, kind="stable"), np.arange(count), axis)
    return np.take_along_axis(x, order, axis), order.astype(np.int64)


@host_op("Pad")
def pad(x: Array, pads: Any = None, value: Any = None, axes: Array | None = None, *, mode: str) -> Array:
    """Borders before and after each axis; negative ones cut."""
    widths = [int(n) for n in np.asarray(pads).reshape(-1)]
    over = list(range(x.ndim)) if axes is None else [int(a) % x.ndim for a in axes.reshape(-1)]
    if len(widths) != 2 * len(over) or mode not in PADDED:
        raise InputError(f"{len(widths)} widths for {len(over)} axes, mode {mode!r}")
    before, after = [0] * x.ndim, [0] * x.ndim
    for axis, low, high in zip(over, widths, widths[len(over) :], strict=False):
        before[axis], after[axis] = low, high
    cut = x[
        tuple(
            slice(max(-low, 0), n + min(high, 0)) for low, high, n in zip(before, after, x.shape, strict=True)
        )
    ]
    wide = [(max(low, 0), max(high, 0)) for low, high in zip(before, after, strict=True)]
    if mode != "constant":
        return np.asarray(np.pad(cut, wide, PADDED[mode]))  # type: ignore[call-overload]
    filler = 0 if value is None else np.asarray(value).reshape(-1)[0]
    return np.pad(cut, wide, constant_values=filler)


@host_op("Flatten")
def flatten(x: Array, *, axis: int) -> Array:
    """A matrix: the axes before ``axis``, and the rest."""
    at = axis + x.ndim if axis < 0 else axis
    return x.reshape(int(np.prod(x.shape[:at])), int(np.prod(x.shape[at:])))


@host_op("Trilu")
def trilu(x: Array, k: Array | None = None, *, upper: int) -> Array:
    """The triangle above or below the ``k``-th diagonal, zero elsewhere."""
    return np.asarray((np.triu if upper else np.tril)(x, 0 if k is None else int(k.item())))


@host_op("DepthToSpace", "SpaceToDepth")
def blocks(x: Array, *, blocksize: int, mode: str = "DCR", op_type: str) -> Array:
    """Channels into blocks of pixels, or back."""
    (n, c, h, w), b = x.shape, blocksize
    if op_type == "SpaceToDepth":
        made = x.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4)
        return np.ascontiguousarray(made).reshape(n, c * b * b, h // b, w // b)
    if mode == "DCR":
        made = x.reshape(n, b, b, c // b**2, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        made = x.reshape(n, c // b**2, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return np.ascontiguousarray(made).reshape(n, c // b**2, h * b, w * b)


@host_op("TensorScatter")
def tensor_scatter(past: Array, update: Array, starts: Array | None = None, *, axis: int, mode: str) -> Array:
    """A cache with new entries written along ``axis`` from each batch's start on, in a circle or not."""
    made, at, steps = past.copy(), axis % past.ndim, update.shape[axis]
    size = past.shape[at]
    for n, step in itertools.product(range(len(past)), range(steps)):
        place = (0 if starts is None else int(starts[n])) + step
        if mode == "circular":
            place %= size
        elif place >= size:
            raise InputError(f"place {place} of {size}")
        np.moveaxis(made[n], at - 1, 0)[place] = np.moveaxis(update[n], at - 1, 0)[step]
    return made
