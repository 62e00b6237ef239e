"""What ops refuse: SpecError, and a message that names the op, what came and what was expected."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

import bslite
from bslite import ops
from bslite.errors import SpecError
from bslite.ops import Shape
from bslite.ops.activation import Activation
from bslite.ops.core import declare
from bslite.ops.values import Applied, Value

IMAGE, VOLUME = (2, 6, 8, 7), (1, 6, 4, 5, 6)
TURNED = {"weight": (6, 4, 3, 3)}
FOLD = {"output_size": (4, 4), "kernel": (2, 2), "padding": (0,) * 4, "dilation": (1, 1)}
STATISTICS = {"running_mean": (6,), "running_var": (6,)}

#: op, input shapes, parameter shapes, attributes, and what the message has to say besides the op's name
WRONG: list[tuple[str, Sequence[Shape], Mapping[str, Shape], Mapping[str, Any], Sequence[str]]] = [
    ("conv2d", [(6, 8, 7)], {"weight": (4, 6, 3, 3)}, {}, ["rank 3", "[6, 8, 7]", "[N, C, H, W]"]),
    ("conv2d", [IMAGE], {"weight": (4, 6, 3)}, {}, ["rank 3", "[4, 6, 3]"]),
    ("conv2d", [IMAGE], {"weight": (4, 5, 3, 3)}, {}, ["6 channels", "[4, 5, 3, 3]", "expects 5"]),
    ("conv2d", [IMAGE], {"weight": (4, 2, 3, 3)}, {"groups": 3}, ["4 output channels", "groups=3"]),
    ("conv2d", [IMAGE], {"weight": (4, 6, 3, 3), "bias": (6,)}, {}, ["bias", "[6]", "expected [4]"]),
    ("conv2d", [IMAGE], {"weight": (4, 6, 9, 3)}, {}, ["too small", "[2, 6, 8, 7]"]),
    ("conv2d", [IMAGE], {}, {}, ["needs parameter 'weight'"]),
    ("conv2d", [IMAGE], {"weight": (4, 6, 3, 3)}, {"stride": 0}, ["stride=0", "at least 1"]),
    ("conv2d", [IMAGE], {"weight": (4, 6, 3, 3)}, {"stride": 1.5}, ["stride=1.5"]),
    ("conv2d", [IMAGE], {"weight": (4, 6, 3, 3)}, {"padding": (1, 2, 3)}, ["padding=(1, 2, 3)", "expected"]),
    ("conv2d", [IMAGE], {"weight": (4, 6, 3, 3)}, {"strides": 1}, ["no attribute 'strides'", "stride"]),
    ("conv2d", [IMAGE, IMAGE], {"weight": (4, 6, 3, 3)}, {}, ["takes 1 input", "got 2"]),
    ("linear", [()], {"weight": (4, 6)}, {}, ["rank 0", "[..., C]"]),
    ("linear", [(3, 5)], {"weight": (4, 6)}, {}, ["[3, 5]", "5 features", "expects 6"]),
    ("linear", [(3, 6)], {"weight": (6,)}, {}, ["rank 1", "[K, C]"]),
    ("linear", [(3, 6)], {"weight": (4, 6), "bias": (1,)}, {}, ["bias", "[1]", "expected [4]"]),
    ("matmul", [(3, 4), (5, 2)], {}, {}, ["[3, 4] @ [5, 2]", "4 columns", "5 rows"]),
    ("matmul", [(4,), (4, 2)], {}, {}, ["rank 1", "[..., M, K]"]),
    ("matmul", [(2, 3, 4), (3, 4, 5)], {}, {}, ["broadcast", "[2]", "[3]"]),
    ("matmul", [(3, 4)], {}, {}, ["takes 2 input(s), got 1"]),
    ("batch_norm", [IMAGE], {**STATISTICS, "running_var": (5,)}, {}, ["running_var", "[5]", "expected [6]"]),
    ("batch_norm", [(6,)], STATISTICS, {}, ["rank 1", "[N, C, ...]"]),
    ("batch_norm", [IMAGE], {"running_mean": (6,)}, {}, ["'running_var'"]),
    ("batch_norm", [IMAGE], {**STATISTICS, "scale": (6,)}, {}, ["no parameter 'scale'"]),
    ("batch_norm", [IMAGE], STATISTICS, {"eps": -1e-5}, ["eps=-1e-05"]),
    ("batch_norm", [IMAGE], STATISTICS, {"eps": float("nan")}, ["NaN"]),
    ("layer_norm", [(2, 5, 8)], {}, {"normalized_shape": (5, 7)}, ["[2, 5, 8]", "[5, 7]"]),
    ("layer_norm", [(8,)], {}, {"normalized_shape": (2, 8)}, ["[8]", "[2, 8]"]),
    ("layer_norm", [(2, 8)], {}, {"normalized_shape": ()}, ["empty"]),
    ("layer_norm", [(2, 8)], {"weight": (2,)}, {"normalized_shape": (8,)}, ["weight", "[2]", "expected [8]"]),
    ("layer_norm", [(2, 8)], {}, {}, ["needs attribute 'normalized_shape'"]),
    ("group_norm", [IMAGE], {}, {"num_groups": 4}, ["6 channels", "num_groups=4"]),
    ("group_norm", [IMAGE], {"bias": (2,)}, {"num_groups": 2}, ["bias", "[2]", "expected [6]"]),
    ("lrn", [(2, 6)], {}, {"size": 3}, ["rank 2", "[N, C, ...]"]),
    ("lrn", [IMAGE], {}, {"size": 0}, ["size=0", "at least 1"]),
    ("conv1d", [IMAGE], {"weight": (4, 6, 3)}, {}, ["rank 4", "[N, C, L]"]),
    ("conv3d", [IMAGE], {"weight": (4, 6, 3, 3, 3)}, {}, ["rank 4", "[N, C, D, H, W]"]),
    ("conv3d", [VOLUME], {"weight": (4, 6, 3, 3, 3)}, {"stride": (1, 2)}, ["(depth, height, width)"]),
    ("conv3d", [VOLUME], {"weight": (4, 6, 5, 3, 3)}, {}, ["too small"]),
    ("conv_transpose2d", [IMAGE], {"weight": (5, 4, 3, 3)}, {}, ["6 channels", "[5, 4, 3, 3]", "expects 5"]),
    ("conv_transpose2d", [IMAGE], TURNED, {"groups": 4}, ["6 input channels", "groups=4"]),
    ("conv_transpose2d", [IMAGE], TURNED, {"output_padding": 1}, ["output_padding", "stride"]),
    ("conv_transpose2d", [IMAGE], {"weight": (6, 4, 1, 1)}, {"padding": 4}, ["too small"]),
    ("conv_transpose2d", [IMAGE], {**TURNED, "bias": (2,)}, {}, ["bias", "expected [4]"]),
    ("max_pool3d", [VOLUME], {}, {"kernel": 3, "padding": (2, 0, 0)}, ["[2, 0, 0, 2, 0, 0]", "half"]),
    ("adaptive_avg_pool1d", [IMAGE], {}, {"output_size": 1}, ["rank 4"]),
    ("max_pool2d", [(6, 8, 7)], {}, {"kernel": 2}, ["rank 3", "[6, 8, 7]"]),
    ("max_pool2d", [IMAGE], {}, {"kernel": 3, "padding": 2}, ["[2, 2, 2, 2]", "half the kernel [3, 3]"]),
    ("max_pool2d", [IMAGE], {}, {"kernel": 9}, ["too small"]),
    ("max_pool2d", [IMAGE], {}, {"kernel": 2, "ceil_mode": 1}, ["ceil_mode=1", "True or False"]),
    ("avg_pool2d", [IMAGE], {}, {"kernel": 2, "divisor_override": 0}, ["divisor_override=0"]),
    ("avg_pool2d", [IMAGE], {}, {"kernel": 2, "dilation": 0}, ["dilation=0"]),
    ("adaptive_avg_pool2d", [(2, 6, 8)], {}, {"output_size": 1}, ["rank 3"]),
    ("adaptive_max_pool2d", [IMAGE], {}, {"output_size": (1, 2, 3)}, ["output_size=(1, 2, 3)"]),
    ("adaptive_max_pool2d", [IMAGE], {}, {"output_size": 0}, ["output_size=0"]),
    ("gelu", [IMAGE], {}, {"approximate": "fast"}, ["approximate='fast'", "none, tanh"]),
    ("leaky_relu", [IMAGE], {}, {"negative_slope": "0.1"}, ["negative_slope='0.1'"]),
    ("relu", [IMAGE], {}, {"inplace": True}, ["no attribute 'inplace'"]),
    ("softmax", [(2, 3)], {}, {"axis": 2}, ["axis 2", "rank 2"]),
    ("log_softmax", [(2, 3)], {}, {"axis": -3}, ["axis -3", "rank 2"]),
    ("dropout", [IMAGE], {}, {"p": 1.5}, ["p=1.5"]),
    ("add", [(2, 3), (2, 4)], {}, {}, ["[2, 3] and [2, 4]", "sizes 3 and 4"]),
    ("mul", [(2, 3)], {}, {}, ["takes 2 input(s), got 1"]),
    ("constant", [], {}, {}, ["needs parameter 'value'"]),
    ("constant", [IMAGE], {"value": ()}, {}, ["takes 0 input(s), got 1"]),
    ("concat", [(2, 3), (3, 3)], {}, {"axis": 1}, ["input 1 is [3, 3]", "input 0 is [2, 3]", "axis 1"]),
    ("concat", [(2, 3), (2, 3, 1)], {}, {"axis": 1}, ["[2, 3, 1]"]),
    ("concat", [], {}, {"axis": 1}, ["takes 1 to 16384 input(s), got 0"]),
    ("concat", [(2, 3)], {}, {"axis": 5}, ["axis 5", "rank 2"]),
    ("flatten", [(2, 3, 4)], {}, {"start_axis": 2, "end_axis": 1}, ["start_axis 2", "end_axis 1"]),
    ("flatten", [(2,)], {}, {}, ["axis 1", "rank 1"]),
    ("expand", [(2, 3)], {}, {"shape": (3,)}, ["[3]", "fewer axes", "[2, 3]"]),
    ("expand", [(2, 3)], {}, {"shape": (2, 4)}, ["[2, 3]", "[2, 4]", "broadcast"]),
    ("expand", [(2, 3)], {}, {"shape": (-1, 2, 3)}, ["[-1, 2, 3]", "lacks"]),
    ("tile", [(2, 3)], {}, {"repeats": (2,)}, ["[2]", "[2, 3]", "expected 2"]),
    ("tile", [(2, 3)], {}, {"repeats": (2, 0)}, ["at least 1"]),
    ("roll", [(2, 3)], {}, {"shifts": (1, 2), "axes": (0,)}, ["[1, 2]", "[0]"]),
    ("roll", [(2, 3)], {}, {"shifts": (1,), "axes": (2,)}, ["axis 2", "rank 2"]),
    ("trilu", [(3,)], {}, {}, ["rank 1", "[..., M, N]"]),
    ("pad", [(2, 3)], {}, {"pads": (0, 3, 0, 0), "mode": "reflect"}, ["[0, 3, 0, 0]", "reflects", "[2, 3]"]),
    ("pad", [(2, 3)], {}, {"pads": (0, -2, 0, -1)}, ["too small"]),
    ("gather_elements", [(2, 3), (2,)], {}, {}, ["[2]", "[2, 3]", "equal ranks"]),
    ("topk", [(2, 3)], {}, {"k": 4}, ["k=4", "3 elements", "[2, 3]"]),
    ("resize", [IMAGE], {}, {"mode": "linear", "axes": (2,)}, ["sizes None", "scales None"]),
    ("resize", [IMAGE], {}, {"mode": "linear", "axes": (2, 2), "sizes": (3, 3)}, ["axes [2, 2]"]),
    ("reshape", [(2, 3)], {}, {"shape": (4, -1)}, ["[2, 3]", "6 elements", "[4, -1]"]),
    ("reshape", [(2, 3)], {}, {"shape": (7,)}, ["6 elements", "[7]"]),
    ("reshape", [(2, 3)], {}, {"shape": (-1, -1)}, ["more than one -1"]),
    ("reshape", [(6,)], {}, {"shape": (2, 3, 0)}, ["[2, 3, 0]", "[6]"]),
    ("reshape", [(6,)], {}, {"shape": (-3, 3)}, ["[-3, 3]", "copies a size", "[6]"]),
    ("permute", [(2, 3)], {}, {"order": (0, 2, 1)}, ["[0, 2, 1]", "[2, 3]"]),
    ("permute", [(2, 3)], {}, {"order": (0, 0)}, ["order=(0, 0)", "once"]),
    ("pad", [(2, 3)], {}, {"pads": (1, 1)}, ["2 pads", "[2, 3]", "expected 4"]),
    ("pad", [(2,)], {}, {"pads": (1, 1.5)}, ["pads=(1, 1.5)"]),
    ("pad", [(2,)], {}, {"pads": (1, 1, 1)}, ["one of each per axis"]),
    ("slice", [(2, 3)], {}, {"axis": 1, "start": 3}, ["3:None:1", "axis 1", "empty"]),
    ("slice", [(2, 3)], {}, {"axis": 2}, ["axis 2", "rank 2"]),
    ("slice", [(2, 3)], {}, {"axis": 1, "step": 0}, ["step=0", "must not be 0"]),
    ("slice", [(2, 3)], {}, {"axis": 1, "step": -1, "stop": 1}, ["0:1:-1", "empty"]),
    ("grid_sample", [IMAGE, (2, 4, 5, 3)], {}, {}, ["[2, 4, 5, 3]", "[N, H, W, 2]"]),
    ("grid_sample", [IMAGE, (1, 4, 5, 2)], {}, {}, ["[1, 4, 5, 2]", "[2, 6, 8, 7]"]),
    ("grid_sample", [(2, 6, 8), (2, 4, 1)], {}, {}, ["rank 3"]),
    ("grid_sample", [(1, 2, 3, 4, 5), (1, 2, 2, 2, 3)], {}, {"mode": "cubic"}, ["'cubic'", "rank 5"]),
    ("grid_sample", [IMAGE, (2, 4, 5, 2)], {}, {"padding": "edge"}, ["'edge'", "zeros, border"]),
    ("unfold", [(2, 6, 8)], {}, {"kernel": 2}, ["rank 3"]),
    ("unfold", [IMAGE], {}, {"kernel": 9}, ["too small"]),
    ("unfold", [IMAGE], {}, {"kernel": (1, 2, 3)}, ["kernel=(1, 2, 3)"]),
    ("fold", [(2, 8, 10)], {}, {**FOLD, "stride": (1, 1)}, ["[2, 8, 10]", "[3, 3]", "[N, C * 4, 9]"]),
    ("fold", [(2, 8, 9)], {}, {**FOLD, "stride": (1,)}, ["as many of each"]),
    ("cumprod", [IMAGE], {}, {"axis": 4}, ["axis 4", "rank 4"]),
    ("fourier", [(3, 8)], {}, {"axis": 1, "length": 8}, ["[3, 8]", "complex", "last axis of size 2"]),
    ("fourier", [(3, 2)], {}, {"axis": 1, "length": 2}, ["[3, 2]", "behind the axis"]),
    ("fourier", [(3, 9, 2)], {}, {"axis": 1, "length": 8}, ["9 points along axis 1", "at most 8"]),
    ("fourier", [(3, 9)], {}, {"axis": 2, "length": 8, "source": "real"}, ["axis 2", "rank 2"]),
    ("fourier", [(3, 8, 2)], {}, {"axis": 1, "length": 8, "onesided": True}, ["onesided", "source='real'"]),
    ("fourier", [(3, 5, 2)], {}, {"axis": 1, "length": 8, "source": "half"}, ["half", "real=True"]),
    ("fourier", [(3, 6, 2)], {}, {"axis": 1, "length": 8, "source": "half", "real": True}, ["at most 5"]),
    ("fourier", [(3, 8, 2)], {}, {"axis": 1, "length": 0}, ["length=0", "at least 1"]),
    ("fourier", [(8, 2)], {}, {"axis": 0, "length": 2**22 + 2}, ["4194306", "at most 4194304"]),
    ("fourier", [(8, 2)], {}, {"axis": 0, "length": 2 * 65537}, ["131074", "131072", "prime factor", "150"]),
    ("fourier", [(3, 8, 2)], {"window": (6,)}, {"axis": 1, "length": 8}, ["window", "[6]", "expected [8]"]),
    ("complex_mul", [(3, 2), (3, 1)], {}, {}, ["input 1", "[3, 1]", "pairs"]),
    ("complex_mul", [(3, 2), (4, 2)], {}, {}, ["[3, 2]", "[4, 2]"]),
    ("logcumsumexp", [()], {}, {"axis": 0}, ["axis 0", "rank 0"]),
    ("upsample", [IMAGE], {}, {"mode": "nearest"}, ["size=None", "scale=None", "exactly one"]),
    ("upsample", [IMAGE], {}, {"mode": "nearest", "size": 4, "scale": 2}, ["exactly one"]),
    ("upsample", [IMAGE], {}, {"mode": "nearest", "size": 4, "align_corners": True}, ["align_corners"]),
    ("upsample", [IMAGE], {}, {"mode": "bicubic", "size": 4}, ["'bicubic'", "nearest, bilinear"]),
    ("upsample", [IMAGE], {}, {"mode": "bilinear", "scale": -1.0}, ["scale=-1.0"]),
    ("upsample", [IMAGE], {}, {"mode": "bilinear", "scale": 0.1}, ["too small"]),
    ("upsample", [(2, 6, 8)], {}, {"mode": "bilinear", "size": 4}, ["rank 3"]),
]


@pytest.mark.parametrize(
    ("name", "shapes", "params", "attrs", "says"), WRONG, ids=[f"{w[0]}: {w[4][0]}" for w in WRONG]
)
def test_refused(
    name: str,
    shapes: Sequence[Shape],
    params: Mapping[str, Shape],
    attrs: Mapping[str, Any],
    says: Sequence[str],
) -> None:
    op = ops.get(name)
    with pytest.raises(SpecError) as caught:
        ops.infer(op, shapes, params, ops.parse_attrs(op, attrs))
    message = str(caught.value)
    assert repr(name) in message
    for words in says:
        assert words in message


def test_unknown_op_suggests_near_ones() -> None:
    with pytest.raises(SpecError, match="unknown op 'conv2'; did you mean 'conv2d'"):
        ops.get("conv2")


def test_a_variable_that_the_base_lacks_is_refused() -> None:
    """A misspelt one would go unnoticed; one that the base only annotates is known, on any Python."""
    with pytest.raises(TypeError, match="op 'misspelt': Activation has no 'sampel_range'"):
        declare(Activation, "misspelt", "x", sampel_range=(0, 1))
    assert "misspelt" not in ops.REGISTRY


def test_a_function_without_a_derivative_says_so() -> None:
    flat = type("Flat", (Activation,), {})()
    flat.name = "flat"
    with pytest.raises(bslite.UnsupportedError, match="op 'flat' has no gradient"):
        flat.vjp(Applied((), cast(Value, None), {}, {}), cast(Value, None))
