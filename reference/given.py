"""Ops whose parameters are values: what those with constants compute."""

from bslite.reference.contraction import linear
from bslite.reference.conv import Sizes, conv, conv_transpose
from bslite.reference.registry import Array, reference


@reference("conv1d_given", "conv2d_given", "conv3d_given")
def conv_given(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
) -> Array:
    """`conv` with this weight and bias."""
    return conv(
        x, weight=weight, bias=bias, stride=stride, padding=padding, dilation=dilation, groups=groups
    )  # fmt: skip


@reference("conv_transpose1d_given", "conv_transpose2d_given", "conv_transpose3d_given")
def conv_transpose_given(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    stride: Sizes,
    padding: Sizes,
    output_padding: Sizes,
    dilation: Sizes,
    groups: int,
) -> Array:
    """`conv_transpose` with this weight and bias."""
    return conv_transpose(
        x, weight=weight, bias=bias, stride=stride, padding=padding, output_padding=output_padding,
        dilation=dilation, groups=groups,
    )  # fmt: skip


@reference("linear_given")
def linear_given(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """`linear` with this weight and bias."""
    return linear(x, weight=weight, bias=bias)
