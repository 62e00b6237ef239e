"""The record of an attention launch. Strides are in elements."""

from bslite.kernels.contracts.launch import F4, I4, LaunchRecord, LaunchVariant
from bslite.kernels.contracts.record import Three


class AttentionVariant(LaunchVariant):
    """``tile``: rows and keys of a block, rows and keys of a thread; ``width``: columns of v that a block
    computes. ``mask_kind``: a `contracts.attention.Mask`. ``safe``: rows without a key are zeros, not NaN.
    """

    tile: tuple[int, int, int, int]
    width: int
    mask_kind: int
    causal: int
    safe: int


class Attention(LaunchRecord, kernel="attention"):
    """``softmax(q @ k^T * scale + mask) @ v`` for matrices along three axes; the inner two are ``n1`` and
    ``n2``.

    ``mask`` and ``flags`` are one operand, as floats and as int32; ``row_tiles``: blocks per matrix.
    """

    q: F4
    k: F4
    v: F4
    mask: F4
    flags: I4
    y: F4
    rows: int
    keys: int
    depth: int
    features: int
    row_tiles: int
    n1: int
    n2: int
    q_axes: Three
    k_axes: Three
    v_axes: Three
    mask_axes: Three
    y_axes: Three
    q_row: int
    k_row: int
    v_row: int
    mask_row: int
    mask_col: int
    y_row: int
    scale: float


class AttentionPairs(Attention, kernel="attention_pairs", pairs=("q", "k", "v", "y")):
    """The fields of `Attention` for pairs of floats: ``depth`` and strides of q, k, v and y count pairs."""
