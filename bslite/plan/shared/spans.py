"""The elements that each window of a pool covers along each axis, cut to the image."""

from collections.abc import Sequence
from typing import NamedTuple

from bslite import ops
from bslite.ops import Shape
from bslite.ops.pool import WindowPool
from bslite.spec import Node


class Span(NamedTuple):
    """The elements of one window along one axis: ``length`` from ``first``; ``share`` of its divisor."""

    first: int
    length: int
    share: int


def window_spans(
    size: int, windows: int, kernel: int, stride: int, before: int, after: int, dilation: int, padded: bool
) -> list[Span]:
    """Sliding windows, cut to the axis of ``size`` elements. ``padded``: the divisor counts padding too."""
    spans = []
    for start in range(-before, -before + windows * stride, stride):
        skip = max(0, -(start // dilation))  # taps before the first element
        stop = min(kernel, max(skip, -(-(size - start) // dilation)))
        inside = min(kernel, -(-(size + after - start) // dilation)) if padded else max(0, stop - skip)
        spans.append(Span(start + skip * dilation, max(0, stop - skip), inside))
    return spans


def adaptive_spans(size: int, windows: int) -> list[Span]:
    """Windows that divide ``size`` elements, overlapping where the division is uneven."""
    edges = [(i * size // windows, -(-(i + 1) * size // windows)) for i in range(windows)]
    return [Span(a, b - a, b - a) for a, b in edges]


def spans_of(node: Node, sizes: Shape, made: Shape) -> tuple[list[list[Span]], Sequence[int]]:
    """The windows of a sliding pool along each axis of an input of ``sizes``, as many as are ``made``, and
    the dilation along each.
    """
    op, attrs = ops.get(node.op), node.attrs
    assert isinstance(op, WindowPool)
    kernel, stride, dilation = op.geometry(attrs)
    before, after = attrs["padding"][: op.axes], attrs["padding"][op.axes :]
    padded = attrs.get("count_include_pad", False)
    spans = [
        window_spans(h, p, r, s, start, stop, d, padded)
        for h, p, r, s, start, stop, d in zip(
            sizes, made, kernel, stride, before, after, dilation, strict=True
        )
    ]
    if attrs.get("divisor_override") is not None:
        spans = [[s._replace(share=1) for s in axis] for axis in spans]
        spans[0] = [s._replace(share=attrs["divisor_override"]) for s in spans[0]]
    return spans, dilation
