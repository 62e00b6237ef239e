"""Constants seen as arrays over some axes of a value, and what they do to an op's weights."""

from collections.abc import Mapping, Sequence

import numpy as np

from bslite.passes.families import TRANSPOSED
from bslite.spec import Array, Node


def channel_vector(value: Array, rank: int, axis: int, size: int) -> Array | None:
    """The constant as ``[size]``, if it broadcasts along all axes of a value of ``rank`` but ``axis``."""
    if value.ndim > rank:
        return None
    sizes = (*[1] * (rank - value.ndim), *value.shape)
    if any(n != 1 for i, n in enumerate(sizes) if i != axis) or sizes[axis] not in (1, size):
        return None
    return np.ascontiguousarray(np.broadcast_to(value.reshape(-1), (size,)))


def trailing_array(value: Array, sizes: Sequence[int]) -> Array | None:
    """The constant as an array over the trailing axes of these sizes; None if it varies along others."""
    while value.ndim > len(sizes) and value.shape[0] == 1:
        value = value[0]
    try:
        return np.ascontiguousarray(np.broadcast_to(value, tuple(sizes)))
    except ValueError:
        return None


def scaled_weight(node: Node, weight: Array, scale: Array) -> Array:
    """A convolution's or linear layer's weight, in float64, with each output channel multiplied."""
    if node.op in TRANSPOSED:  # [C, K/groups, ...]: output channels are axis 1, group by group
        groups = node.attrs["groups"]
        grouped = weight.reshape(groups, -1, *weight.shape[1:]).astype(np.float64)
        scaled = grouped * scale.reshape(groups, 1, -1, *[1] * (weight.ndim - 2))
    else:
        scaled = weight.astype(np.float64) * scale.reshape(-1, *[1] * (weight.ndim - 1))
    return scaled.reshape(weight.shape)


def shifted_bias(params: Mapping[str, Array], scale: Array | float, shift: Array | float) -> Array | float:
    """``bias * scale + shift`` in float64, of the parameters' bias or of none."""
    return params["bias"].astype(np.float64) * scale + shift if "bias" in params else shift


def batch_norm_scale_shift(params: Mapping[str, Array], eps: float) -> tuple[Array, Array]:
    """A batch norm as ``y = x*scale + shift`` per channel, in float64 (arXiv 1502.03167, at inference)."""
    var = params["running_var"].astype(np.float64)
    mean = params["running_mean"].astype(np.float64)
    scale = 1.0 / np.sqrt(var + eps)
    if "weight" in params:
        scale = scale * params["weight"].astype(np.float64)
    shift = -mean * scale
    if "bias" in params:
        shift = shift + params["bias"].astype(np.float64)
    return scale, shift
