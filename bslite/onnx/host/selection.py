"""Operators whose result is as large as the values say: NonZero, Compress, Unique, NonMaxSuppression."""

from typing import Any

import numpy as np

from bslite.errors import InputError
from bslite.onnx.host.node import host_op
from bslite.spec import Array


@host_op("NonZero", first=True)
def non_zero(x: Array) -> Array:
    """The indices of elements that are not zero, [rank, count], in row-major order."""
    return np.array(np.nonzero(np.atleast_1d(x)), np.int64)


@host_op("Compress", first=True)
def compress(x: Array, condition: Array, *, axis: int | None) -> Array:
    """The slices along ``axis``, or elements, at which ``condition`` is true."""
    return np.compress(condition, x, axis)


@host_op("Unique", first=True)
def unique(x: Array, *, axis: int | None, sorted: int, results: int) -> tuple[Array, ...]:
    """Each value once (each slice along ``axis``), its first index, where each came from, and how often.

    ``sorted``: in ascending order, else in the order of their first indices.
    """
    values, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        values = np.take(values, order, 0 if axis is None else axis)
        first, inverse, counts = first[order], place[inverse], counts[order]
    return values, *(a.astype(np.int64) for a in (first, inverse, counts))


@host_op("NonMaxSuppression", first=True)
def non_max_suppression(
    boxes: Array, scores: Array, most: Array | None = None, overlap: Array | None = None,
    least: Array | None = None, *, center_point_box: int,
) -> Array:  # fmt: skip
    """[count, 3]: batch, class and box of those kept, the best first.

    ``boxes`` [N, B, 4], corners y1 x1 y2 x2 in any order, or centre x y with width and height.
    ``scores`` [N, C, B]. A box is dropped if a better one of its class overlaps it by more than ``overlap``,
    the ratio of intersection to union, or if its score is not above ``least``.
    """
    if boxes.ndim != 3 or boxes.shape[2] != 4 or scores.ndim != 3:
        raise InputError(
            f"boxes {list(boxes.shape)}, scores {list(scores.shape)}; expected [N, B, 4], [N, C, B]"
        )
    if (boxes.shape[0], boxes.shape[1]) != (scores.shape[0], scores.shape[2]):
        raise InputError(f"boxes {list(boxes.shape)} and scores {list(scores.shape)} do not fit")
    limit = 0 if most is None else int(most.item())
    threshold = np.float32(0 if overlap is None else overlap.item())
    found: list[tuple[int, int, int]] = []
    for n, rows in enumerate(boxes):
        corners = _corners(rows, bool(center_point_box))
        for c, row in enumerate(scores[n]):
            kept = _suppress(corners, row, limit, threshold, least)
            found += [(n, c, int(b)) for b in kept]
    return np.array(found, np.int64).reshape(-1, 3)


def _corners(boxes: Array, centred: bool) -> Array:
    """[B, 4]: the lower corner, then the upper."""
    if centred:
        middle, half = boxes[:, :2], boxes[:, 2:] / 2
        return np.concatenate([middle - half, middle + half], 1)
    return np.concatenate([np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])], 1)


def _suppress(corners: Array, scores: Array, limit: int, threshold: Any, least: Array | None) -> list[int]:
    """The boxes of one class that are kept, best first."""
    candidates = np.arange(len(scores))
    if least is not None:
        candidates = candidates[scores > least.item()]
    candidates = candidates[np.argsort(-scores[candidates], kind="stable")]
    areas = np.prod(corners[:, 2:] - corners[:, :2], 1)
    kept: list[int] = []
    while len(candidates) and len(kept) < limit:
        best, candidates = candidates[0], candidates[1:]
        kept.append(best)
        low = np.maximum(corners[best, :2], corners[candidates, :2])
        high = np.minimum(corners[best, 2:], corners[candidates, 2:])
        shared = np.prod(np.maximum(high - low, 0), 1)
        union = areas[best] + areas[candidates] - shared
        ratio = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
        candidates = candidates[ratio <= threshold]
    return kept
