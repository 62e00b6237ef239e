"""Shape rules: equal to what the reference makes, and to what torch makes of random windows, or refuses."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.check import FLOAT64, all_cases, arguments, rel_l2
from support.torch_oracle import torch_output

from bslite import ops, reference
from bslite.errors import SpecError
from bslite.ops import Case, Op, Shape


def infer(
    name: str, shapes: Sequence[Shape], params: Mapping[str, Shape] | None = None, **attrs: Any
) -> Shape:
    op = ops.get(name)
    return ops.infer(op, shapes, params or {}, ops.parse_attrs(op, attrs))


@pytest.mark.parametrize(("op", "case"), all_cases())
def test_rule_equals_reference(op: Op, case: Case) -> None:
    inputs, params, attrs = arguments(op, case)
    shape = ops.infer(op, [x.shape for x in inputs], case.params, attrs)
    got = reference.call(op.name, inputs, params, attrs, np.float32)
    assert isinstance(got, np.ndarray)
    assert got.shape == shape
    assert got.dtype.name == op.dtype(
        [x.dtype.name for x in inputs], {role: p.dtype.name for role, p in params.items()}, attrs
    )
    assert all(type(d) is int for d in shape)
    assert op.flops([x.shape for x in inputs], shape, case.params, attrs) >= 0


sizes = st.integers(1, 12)
images = st.tuples(st.integers(1, 2), st.integers(1, 3), sizes, sizes)
pairs = st.tuples(st.integers(1, 5), st.integers(1, 5))
small = st.tuples(st.integers(1, 3), st.integers(1, 3))
pads = st.tuples(st.integers(0, 3), st.integers(0, 3))


def agrees_with_torch(name: str, image: Shape, params: Mapping[str, Shape], attrs: Mapping[str, Any]) -> None:
    """Both refuse the configuration, or both make the same values of the same shape."""
    op = ops.get(name)
    parsed = ops.parse_attrs(op, attrs)
    inputs, arrays, _ = arguments(op, Case("drawn", [image], params, attrs))
    try:
        want = torch_output(op, inputs, arrays, parsed)
    except RuntimeError:
        with pytest.raises(SpecError, match=name):
            ops.infer(op, [image], params, parsed)
        return
    assert ops.infer(op, [image], params, parsed) == want.shape
    wide = {role: a.astype(np.float64) for role, a in arrays.items()}
    got = reference.FUNCTIONS[name](inputs[0].astype(np.float64), **wide, **parsed)
    assert rel_l2(got, want) <= FLOAT64


@settings(deadline=None, max_examples=200)
@given(
    image=images,
    kernel=pairs,
    stride=small,
    padding=pads,
    dilation=small,
    k=st.integers(1, 3),
    depthwise=st.booleans(),
)
def test_conv2d_like_torch(
    image: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, k: int, depthwise: bool
) -> None:
    groups = image[1] if depthwise else 1
    params = {"weight": (k * groups, image[1] // groups, *kernel), "bias": (k * groups,)}
    attrs = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    agrees_with_torch("conv2d", image, params, attrs)


factors = st.sampled_from([0.3, 0.5, 2 / 3, 1.0, 1.1, 1.5, 2.0, 2.3, 3.0])
target = st.fixed_dictionaries({"size": st.tuples(sizes, sizes)}) | st.fixed_dictionaries(
    {"scale": st.tuples(factors, factors)}
)
flags, strides, maybe = st.booleans(), st.none() | pairs, st.none() | sizes
#: Ops whose attributes are drawn.
DRAWN: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "max_pool2d": st.fixed_dictionaries(
        {"kernel": pairs, "stride": strides, "padding": pads, "dilation": small, "ceil_mode": flags}
    ),
    "avg_pool2d": st.fixed_dictionaries(
        {"kernel": pairs, "stride": strides, "padding": pads, "ceil_mode": flags, "count_include_pad": flags,
         "divisor_override": st.none() | st.integers(1, 9)}
    ),
    "adaptive_avg_pool2d": st.fixed_dictionaries({"output_size": st.tuples(maybe, maybe)}),
    "adaptive_max_pool2d": st.fixed_dictionaries({"output_size": st.tuples(maybe, maybe)}),
    "upsample": st.builds(lambda to, flag: {"mode": "bilinear", **to, "align_corners": flag}, target, flags),
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWN)
@settings(deadline=None, max_examples=300)
@given(image=images, data=st.data())
def test_like_torch(name: str, image: Shape, data: st.DataObject) -> None:
    agrees_with_torch(name, image, {}, data.draw(DRAWN[name]))


@settings(deadline=None, max_examples=200)
@given(size=st.integers(1, 70), factor=factors | st.floats(0.3, 4))
def test_nearest_picks_torch_float32_pixels(size: int, factor: float) -> None:
    """torch's channels-last kernel is the judge: its other ones round differently, each in its own way."""
    assume(int(size * factor))
    op, x = ops.get("upsample"), np.tile(np.arange(size, dtype=np.float32)[:, None], (1, 8, 1, 2))
    attrs = ops.parse_attrs(op, {"mode": "nearest", "scale": (factor, 1)})
    image = torch.from_numpy(x).contiguous(memory_format=torch.channels_last)
    want = torch.nn.functional.interpolate(image, scale_factor=attrs["scale"], recompute_scale_factor=False)
    for dtype in (np.float32, np.float64):
        np.testing.assert_array_equal(reference.FUNCTIONS["upsample"](x.astype(dtype), **attrs), want.numpy())
