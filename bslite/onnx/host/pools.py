"""A pool that says where its results came from."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bslite.errors import InputError, SpecError
from bslite.onnx.host.node import host_op
from bslite.spec import Array

Ints = Sequence[int]


@host_op("MaxPool")
def max_pool(
    x: Array, *, kernel_shape: Ints, auto_pad: str, ceil_mode: int = 0, dilations: Ints | None = None,
    pads: Ints | None, storage_order: int = 0, strides: Ints | None,
) -> tuple[Array, Array]:  # fmt: skip
    """The largest of each window, and its place in the whole input, flat; of equals, the first."""
    n = len(kernel_shape)
    if x.ndim != n + 2:
        raise InputError(f"{list(x.shape)} does not fit a window of {list(kernel_shape)}")
    sizes, steps, spread = x.shape[2:], strides or (1,) * n, dilations or (1,) * n
    before, out = [], []
    for i, (size, k, step, d) in enumerate(zip(sizes, kernel_shape, steps, spread, strict=True)):
        reach = d * (k - 1) + 1
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            count = -(-size // step)
            total = max(0, (count - 1) * step + reach - size)
            first = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
        else:
            first, last = (pads[i], pads[n + i]) if pads and auto_pad == "NOTSET" else (0, 0)
            room = size + first + last - reach
            if room < 0:
                raise SpecError(f"its window is larger than the image {list(sizes)} with its padding")
            count = (-(-room // step) if ceil_mode else room // step) + 1
            if ceil_mode and (count - 1) * step >= size + first:
                count -= 1  # a window that begins in the padding behind
        before.append(first)
        out.append(count)
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    best = np.full((*x.shape[:2], *out), least, x.dtype)
    place = np.full(best.shape, -1, np.int64)
    weights = [math.prod(sizes[i + 1 :]) for i in range(n)]
    if storage_order:
        weights = [math.prod(sizes[:i]) for i in range(n)]
    for tap in itertools.product(*map(range, kernel_shape)):
        taken: list[Array] = []
        given: list[Array] = []
        flat = np.zeros((1,) * n, np.int64)
        for i in range(n):
            at = np.arange(out[i]) * steps[i] + tap[i] * spread[i] - before[i]
            inside = np.flatnonzero((at >= 0) & (at < sizes[i]))
            taken.append(inside)
            given.append(at[inside])
            flat = flat + (at[inside] * weights[i]).reshape(-1, *(1,) * (n - i - 1))
        here: Any = (slice(None), slice(None), *np.ix_(*taken))
        there: Any = (slice(None), slice(None), *np.ix_(*given))
        values = x[there]
        better = (values > best[here]) | (place[here] < 0)
        best[here] = np.where(better, values, best[here])
        place[here] = np.where(better, flat, place[here])
    planes = np.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], *(1,) * n) * math.prod(sizes)
    return best, place + planes
