"""The checks of the oracle can fail: each of these faults, put into a reference function, is caught.

A fault stands for a mistake somebody could make in the function. The check is the one that passes for the
true functions, over the same cases; a fault no case catches is a hole in the cases.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.check import Array
from support.torch_oracle import check_reference

from bslite import ops
from bslite.ops import Case, Op
from bslite.reference import FUNCTIONS, activation, normalize, pool
from bslite.reference.registry import Function

#: (op, what is wrong, the true function -> the faulty one)
FAULTS: list[tuple[str, str, Callable[[Function], Function]]] = []
GELUS = ("none", "tanh")


def changed(**edits: Callable[[dict[str, Any]], Any]) -> Callable[[Function], Function]:
    """The true function, given other attributes or parameters: name -> what becomes of it."""

    def fault(true: Function) -> Function:
        return lambda *xs, **kw: true(*xs, **{**kw, **{name: edit(kw) for name, edit in edits.items()}})

    return fault


def fault(op: str, wrong: str) -> Callable[[Function], Function]:
    """Plant the decorated function, which takes the place of the true one."""

    def plant(faulty: Function) -> Function:
        FAULTS.append((op, wrong, lambda true: faulty))
        return faulty

    return plant


def dropped(**names: Any) -> Callable[[Function], Function]:
    """The true function, always given these values."""
    return changed(**{name: lambda kw, value=value: value for name, value in names.items()})


def swapped(name: str) -> Callable[[Function], Function]:
    """The true function, (height, width) taken for (width, height), (top, left, ...) for (left, top, ...)."""

    def swap(kw: dict[str, Any]) -> Any:
        value = kw[name]
        return value if value is None else value[1::-1] + value[:1:-1]

    return changed(**{name: swap})


def exchanged(name: str) -> Callable[[Function], Function]:
    """The true function, what is for the ends taken for the starts."""
    return changed(**{name: lambda kw: kw[name][len(kw[name]) // 2 :] + kw[name][: len(kw[name]) // 2]})


def without_extra(true: Function, x: Array, kw: dict[str, Any]) -> Array:
    """Zeros where output_padding is, as if nothing reached there."""
    y = true(x, **kw)
    for axis, extra in enumerate(kw["output_padding"]):
        if extra:
            y[(..., slice(-extra, None), *[slice(None)] * (len(kw["output_padding"]) - axis - 1))] = 0
    return y


FAULTS += [
    ("conv2d", "padding swapped", swapped("padding")),
    ("conv2d", "bottom padding used at the top", exchanged("padding")),
    ("conv2d", "stride swapped", swapped("stride")),
    ("conv2d", "dilation swapped", swapped("dilation")),
    ("conv2d", "dilation ignored", dropped(dilation=(1, 1))),
    ("conv2d", "bias forgotten", dropped(bias=None)),
    ("conv2d", "kernel flipped", changed(weight=lambda kw: kw["weight"][..., ::-1, ::-1])),
    ("conv2d", "output channels of the groups mixed up", lambda true: lambda x, **kw: regrouped(true, x, kw)),
    ("linear", "bias forgotten", dropped(bias=None)),
    ("linear", "weight reversed", changed(weight=lambda kw: kw["weight"][::-1])),
    ("matmul", "second factor reversed", lambda true: lambda x, y: true(x, y[..., ::-1, :])),
    ("batch_norm", "eps dropped", dropped(eps=0.0)),
    ("batch_norm", "eps of the other default", dropped(eps=1e-3)),
    ("batch_norm", "mean not subtracted", changed(running_mean=lambda kw: 0 * kw["running_mean"])),
    ("batch_norm", "scale forgotten", dropped(weight=None)),
    ("batch_norm", "variance for deviation", changed(running_var=lambda kw: kw["running_var"] ** 2)),
    ("layer_norm", "eps dropped", dropped(eps=0.0)),
    ("layer_norm", "only the last axis", changed(normalized_shape=lambda kw: kw["normalized_shape"][-1:])),
    ("layer_norm", "shift forgotten", dropped(bias=None)),
    ("group_norm", "one group", dropped(num_groups=1)),
    ("group_norm", "eps dropped", dropped(eps=0.0)),
    ("lrn", "alpha not divided by size", changed(alpha=lambda kw: kw["alpha"] * kw["size"])),
    ("lrn", "k ignored", dropped(k=1.0)),
    ("lrn", "channels the other way round", lambda true: lambda x, **kw: true(x[:, ::-1], **kw)[:, ::-1]),
    ("max_pool2d", "ceil_mode ignored", dropped(ceil_mode=False)),
    ("max_pool2d", "dilation ignored", dropped(dilation=(1, 1))),
    ("max_pool2d", "stride 1 by default", changed(stride=lambda kw: kw["stride"] or (1, 1))),
    ("max_pool2d", "kernel swapped", swapped("kernel")),
    ("max_pool2d", "minimum", lambda true: lambda x, **kw: -true(-x, **kw)),
    ("avg_pool2d", "count_include_pad ignored", dropped(count_include_pad=True)),
    ("avg_pool2d", "padding never counted", dropped(count_include_pad=False)),
    ("avg_pool2d", "divisor_override ignored", dropped(divisor_override=None)),
    ("avg_pool2d", "always the whole kernel", changed(divisor_override=lambda kw: math.prod(kw["kernel"]))),
    ("conv1d", "padding at the other end", swapped("padding")),
    ("conv1d", "dilation ignored", dropped(dilation=(1,))),
    ("conv3d", "back padding used at the front", exchanged("padding")),
    ("conv3d", "frames and columns swapped", changed(stride=lambda kw: kw["stride"][::-1])),
    ("conv3d", "kernel flipped in time", changed(weight=lambda kw: kw["weight"][:, :, ::-1])),
    ("conv_transpose2d", "bias forgotten", dropped(bias=None)),
    ("conv_transpose2d", "output_padding cut off", lambda true: lambda x, **kw: without_extra(true, x, kw)),
    ("conv_transpose2d", "kernel flipped", changed(weight=lambda kw: kw["weight"][..., ::-1, ::-1])),
    ("conv_transpose2d", "padding swapped", swapped("padding")),
    ("conv_transpose3d", "dilation ignored", dropped(dilation=(1, 1, 1))),
    ("conv_transpose1d", "padding at the other end", swapped("padding")),
    ("max_pool3d", "dilation ignored", dropped(dilation=(1, 1, 1))),
    ("max_pool1d", "ceil_mode ignored", dropped(ceil_mode=False)),
    ("avg_pool3d", "divisor_override ignored", dropped(divisor_override=None)),
    ("avg_pool1d", "padding never counted", dropped(count_include_pad=False)),
    ("adaptive_avg_pool3d", "sizes reversed", changed(output_size=lambda kw: kw["output_size"][::-1])),
    ("adaptive_avg_pool2d", "size swapped", swapped("output_size")),
    ("adaptive_max_pool2d", "size swapped", swapped("output_size")),
    ("leaky_relu", "default slope", dropped(negative_slope=0.01)),
    ("elu", "alpha ignored", dropped(alpha=1.0)),
    ("gelu", "forms swapped", changed(approximate=lambda kw: GELUS[kw["approximate"] == "none"])),
    ("relu6", "not capped", lambda true: FUNCTIONS["relu"]),
    ("hardsigmoid", "ONNX's slope", lambda true: lambda x, alpha, beta: np.clip(0.2 * x + 0.5, 0, 1)),
    ("hardswish", "is silu", lambda true: lambda x: FUNCTIONS["silu"](x, beta=1.0)),
    ("softmax", "another axis", dropped(axis=0)),
    ("log_softmax", "another axis", dropped(axis=0)),
    ("dropout", "drops", lambda true: lambda x, p: x * (1 - p)),
    ("stop_gradient", "stops the value", lambda true: lambda x: x * 0),
    ("binary_cross_entropy", "of two logits", lambda true: lambda x, t: np.logaddexp(0, x) - x * t),
    ("mul", "is add", lambda true: FUNCTIONS["add"]),
    ("sub", "the other way round", lambda true: lambda x, y: true(y, x)),
    ("div", "the other way round", lambda true: lambda x, y: true(y, x)),
    ("fmod", "is remainder", lambda true: FUNCTIONS["remainder"]),
    ("remainder", "is fmod", lambda true: FUNCTIONS["fmod"]),
    ("floor_div", "towards zero", lambda true: lambda x, y: FUNCTIONS["div"](x - 15, y)),
    ("less", "or equal", lambda true: FUNCTIONS["less_equal"]),
    ("greater", "or equal", lambda true: FUNCTIONS["greater_equal"]),
    ("where", "branches swapped", lambda true: lambda c, x, y: true(c, y, x)),
    ("round", "upwards", lambda true: lambda x: np.ceil(x)),
    ("clamp", "no upper bound", dropped(high=np.inf)),
    ("celu", "alpha ignored", dropped(alpha=1.0)),
    ("softplus", "beta ignored", dropped(beta=1.0)),
    ("softplus", "threshold ignored", dropped(threshold=20.0)),
    ("silu", "beta ignored", dropped(beta=1.0)),
    ("shrink", "no bias", dropped(bias=0.0)),
    ("threshold", "zero instead", dropped(value=0.0)),
    ("prelu", "slope of one", lambda true: lambda x, y: true(x, np.ones_like(y))),
    ("sum", "axes ignored", dropped(axes=())),
    ("mean", "is sum", lambda true: FUNCTIONS["sum"]),
    ("var", "always unbiased", dropped(correction=1.0)),
    ("amax", "of sizes", lambda true: lambda x, **kw: true(np.abs(x), **kw)),
    ("logsumexp", "no logarithm", lambda true: lambda x, **kw: np.exp(true(x, **kw))),
    ("argmax", "is argmin", lambda true: FUNCTIONS["argmin"]),
    ("cumsum", "exclusive ignored", dropped(exclusive=False)),
    ("sequence_lengths", "sorted on the way", lambda true: lambda *xs, **kw: np.sort(true(*xs, **kw))),
    ("cumsum", "reverse ignored", dropped(reverse=False)),
    ("fourier", "never inverse", dropped(inverse=False)),
    ("fourier", "not scaled", dropped(scale=1.0)),
    ("fourier", "of a half, the half", changed(source=lambda kw: kw["source"].replace("half", "complex"))),
    ("fourier", "no window", dropped(window=None)),
    ("complex_mul", "never conjugate", dropped(conj=False)),
    ("complex_mul", "operands exchanged", lambda true: lambda x, y, **kw: true(y, x, **kw)),
    ("cumprod", "is cumsum", lambda true: FUNCTIONS["cumsum"]),
    ("cumprod", "exclusive ignored", dropped(exclusive=False)),
    ("logcumsumexp", "no logarithm", lambda true: lambda x, **kw: np.exp(true(x, **kw))),
    ("grid_sample", "always linear", changed(mode=lambda kw: "linear")),
    ("grid_sample", "padding ignored", changed(padding=lambda kw: "zeros")),
    ("grid_sample", "corners ignored", changed(align_corners=lambda kw: False)),
    ("grid_sample", "x and y exchanged", lambda true: lambda x, g, **kw: true(x, g[..., ::-1], **kw)),
    ("unfold", "windows mirrored", lambda true: lambda x, **kw: true(x[..., ::-1], **kw)),
    ("fold", "columns in the opposite order", lambda true: lambda x, **kw: true(x[..., ::-1], **kw)),
    ("concat", "order swapped", lambda true: lambda *xs, axis: true(*xs[::-1], axis=axis)),
    ("permute", "inverted", changed(order=lambda kw: tuple(int(i) for i in np.argsort(kw["order"])))),
    ("pad", "value ignored", dropped(value=0.0)),
    ("pad", "before for after", exchanged("pads")),
    ("slice", "step ignored", dropped(step=1)),
    ("slice", "start ignored", dropped(start=0)),
    ("upsample", "align_corners flipped", changed(align_corners=lambda kw: not kw["align_corners"])),
    ("upsample", "bilinear always", dropped(mode="bilinear")),
    ("upsample", "ratio of the sizes for the scale", lambda true: lambda x, **kw: resized(true, x, kw)),
]


def regrouped(true: Function, x: Array, kw: dict[str, Any]) -> Array:
    """Channel k of group g where channel g of group k belongs."""
    y = true(x, **kw)
    n, k, p, q = y.shape
    return y.reshape(n, kw["groups"], -1, p, q).swapaxes(1, 2).reshape(n, k, p, q)


def resized(true: Function, x: Array, kw: dict[str, Any]) -> Array:
    """The output size is right, the positions are computed from the rounded size."""
    if kw["scale"]:
        size = tuple(int(d * s) for d, s in zip(x.shape[2:], kw["scale"], strict=True))
        kw |= {"scale": None, "size": size}
    return true(x, **kw)


@fault("layer_norm", "unbiased variance")
def unbiased(x: Array, *, normalized_shape: Any, eps: float, weight: Any = None, bias: Any = None) -> Array:
    axes = tuple(range(-len(normalized_shape), 0))
    y = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True, ddof=1) + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


@fault("batch_norm", "eps outside the root")
def eps_outside(
    x: Array, *, running_mean: Array, running_var: Array, eps: float, weight: Any = None, bias: Any = None
) -> Array:
    wider = (np.sqrt(running_var) + eps) ** 2
    roles = {"running_mean": running_mean, "running_var": wider, "weight": weight, "bias": bias}
    return normalize.batch_norm(x, **roles, eps=0.0)


@fault("max_pool2d", "zeros as padding")
def zero_padded(x: Array, **kw: Any) -> Array:
    y = pool.max_pool(x, **kw)
    counted = {"dilation": (1, 1), "count_include_pad": True, "divisor_override": math.prod(kw["kernel"])}
    inside = pool.avg_pool(np.ones_like(x), **{**kw, **counted})
    return y if y.shape != inside.shape else np.where(inside < 1, np.maximum(y, 0), y)


@fault("max_pool2d", "a last window in the padding kept")
def window_too_many(x: Array, **kw: Any) -> Array:
    y = pool.max_pool(x, **kw)
    if not kw["ceil_mode"]:
        return y
    stride = kw["stride"] or kw["kernel"]
    missing = []  # windows that ceil(...) counts and torch drops, per axis
    for axis in (0, 1):
        extent = kw["dilation"][axis] * (kw["kernel"][axis] - 1) + 1
        padded = x.shape[2 + axis] + kw["padding"][axis] + kw["padding"][2 + axis]
        missing.append(-(-(padded - extent) // stride[axis]) + 1 - y.shape[2 + axis])
    return np.pad(y, ((0, 0), (0, 0), (0, missing[0]), (0, missing[1])))


@fault("gelu", "an approximate erf")
def rough_gelu(x: Array, *, approximate: str) -> Array:
    if approximate == "tanh":
        return activation.gelu(x, approximate=approximate)
    return x * activation.sigmoid(1.702 * x)


def fails(op: Op, case: Case) -> bool:
    """Whether the check catches something on this case."""
    try:
        check_reference(op, case)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize(("name", "wrong", "plant"), FAULTS, ids=[f"{f[0]}: {f[1]}" for f in FAULTS])
def test_caught(
    name: str, wrong: str, plant: Callable[[Function], Function], monkeypatch: pytest.MonkeyPatch
) -> None:
    op = ops.get(name)
    monkeypatch.setitem(FUNCTIONS, name, plant(FUNCTIONS[name]))
    assert any(fails(op, case) for case in op.cases()), f"{name}, {wrong}: every case passes"


def test_faults_are_spread_over_the_ops() -> None:
    assert len({name for name, _, _ in FAULTS}) >= 25
