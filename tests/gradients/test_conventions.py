"""Gradients where a function has no slope, or several: at bounds, equal values, zeros. They are torch's."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.torch_modules import Fn

import bslite
from bslite import reference
from bslite.spec import Array

POINTS = np.array(
    [-7, -6, -3, -2, -1, -0.5, -0.3, -0.0, 0, 0.3, 0.5, 1, 2, 3, 6, 7, 1e-23, -1e-23, 30, -30, 100, -100],
    "f4",
)
OF_ONE: dict[str, Callable[..., Any]] = {
    **{
        name: getattr(F, name)
        for name in (
            *("relu", "relu6", "hardtanh", "hardswish", "hardsigmoid", "leaky_relu", "elu", "selu", "celu"),
            *("gelu", "silu", "mish", "softplus", "softsign", "tanhshrink", "softshrink", "hardshrink"),
            *("logsigmoid", "sigmoid", "tanh"),
        )
    },
    **{
        name: getattr(torch, name)
        for name in (
            *(
                "abs",
                "tan",
                "asin",
                "acos",
                "acosh",
                "atanh",
                "log",
                "log2",
                "log10",
                "log1p",
                "sqrt",
                "rsqrt",
            ),
            *(
                "reciprocal",
                "round",
                "floor",
                "ceil",
                "trunc",
                "frac",
                "sign",
                "square",
                "sinc",
                "nan_to_num",
            ),
        )
    },
    "clamp to six": lambda x: x.clamp(0, 6),
    "hardtanh to six": lambda x: F.hardtanh(x, 0, 6),
    "clamp": lambda x: x.clamp(-1, 1),
    "clamp above": lambda x: x.clamp_max(0.5),
    "clamp by tensors": lambda x: x.clamp(torch.tensor(-1.0), torch.tensor(1.0)),
    "threshold": lambda x: F.threshold(x, 0.5, 2),
    "power": lambda x: x**2.5,
    "root": lambda x: x**0.5,
    "negative power": lambda x: x**-2,
    "of nothing": lambda x: x**0,
    "as exponent": lambda x: 2**x,
    "power of zero": lambda x: torch.pow(0.0, x),
    "fmod": lambda x: torch.fmod(x, 2),
    "remainder": lambda x: x % 2,
    "maximum": lambda x: torch.maximum(x, torch.tensor(0.0)),
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "smooth l1": lambda x: F.smooth_l1_loss(x, torch.zeros_like(x), reduction="none"),
    "huber": lambda x: F.huber_loss(x, torch.zeros_like(x), reduction="none"),
    "l1": lambda x: F.l1_loss(x, torch.zeros_like(x), reduction="none"),
    "cross entropy of logits": lambda x: F.binary_cross_entropy_with_logits(x, torch.ones_like(x)),
    "cross entropy": lambda x: F.binary_cross_entropy(x.clamp(0, 1), torch.ones_like(x), reduction="none"),
    "weighted": lambda x: F.binary_cross_entropy(x.clamp(0, 1), torch.zeros_like(x), x.detach().abs()),
    "hinge": lambda x: F.hinge_embedding_loss(x, torch.ones_like(x), reduction="none"),
    "detached": lambda x: x.detach() * x,
}
PAIRS = np.array(list(itertools.product([-2, -1, -0.0, 0, 0.5, 1, 2, 3], repeat=2)), "f4")
OF_TWO: dict[str, Callable[..., Any]] = {
    **{
        name: getattr(torch, name)
        for name in ("maximum", "minimum", "max", "fmax", "fmin", "fmod", "remainder", "atan2", "copysign")
    },
    "div": lambda x, y: x / y,
    "floor of quotients": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "pow": torch.pow,
    "xlogy": lambda x, y: torch.xlogy(x, y.abs() + 0.25),
    "x log y": lambda x, y: torch.xlogy(x, y + 0.25),
    "clamp below": lambda x, y: x.clamp(min=y),
    "clamp both": lambda x, y: x.clamp(y, y + 1),
    "bounds that meet": lambda x, y: x.clamp(y, y * 1),
    "bounds that cross": lambda x, y: x.clamp(y, 1 - y),
    "angle": lambda x, y: torch.complex(x, y).angle(),
    "complex size": lambda x, y: torch.complex(x, y).abs(),
    "hypot": lambda x, y: torch.hypot(x, y.abs() + 0.5),
    "dist": torch.dist,
    "ldexp": torch.ldexp,
}
ROWS = np.array(
    [
        *([0, 0, 0, 0], [1, 1, 0, -1], [2, 2, 2, 2], [-1, -1, 3, 3], [0, 0, 1, 0]),
        *([5, 4, 3, -5], [4, 4, 4, 0]),
    ],
    "f4",
)


def norm(order: float) -> Callable[..., Any]:
    return lambda x: torch.linalg.vector_norm(x, order, 1)


OF_ROWS: dict[str, Callable[..., Any]] = {
    "amax": lambda x: x.amax(1),
    "amin": lambda x: x.amin((0, 1)),
    "largest": lambda x: x.max(1)[0],
    "smallest": lambda x: x.min(0, keepdim=True)[0],
    "largest of all": lambda x: x.max(),
    "sort": lambda x: x.sort(1)[0],
    "median": lambda x: x.median(1)[0],
    "cummax": lambda x: x.cummax(1)[0],
    "cummin": lambda x: x.cummin(0)[0],
    "std": lambda x: x.std(1),
    "prod": lambda x: x.prod(1),
    "prod of all": lambda x: (x + 3).prod(),
    "cumprod": lambda x: x.cumprod(1),
    "cumprod, columns": lambda x: x.cumprod(0),
    **{f"norm {order}": norm(order) for order in (0, 0.5, 1, 1.5, 2, 2.5, 3, 4, np.inf, -np.inf, -1)},
    "normalize": lambda x: F.normalize(x, dim=1),
    "max_pool": lambda x: F.max_pool1d(x[None], 2)[0],
    "embeddings": lambda x: F.embedding_bag(torch.tensor([[0, 1, 2], [3, 3, 5]]), x, mode="max"),
    "spectrum": lambda x: torch.fft.rfft(x).abs(),
    "phases": lambda x: torch.fft.rfft(x).angle(),
}
CASES = [
    *((name, function, [POINTS]) for name, function in OF_ONE.items()),
    *((name, function, [PAIRS[:, 0], PAIRS[:, 1]]) for name, function in OF_TWO.items()),
    *((name, function, [ROWS]) for name, function in OF_ROWS.items()),
]


@pytest.mark.parametrize(("name", "function", "given"), CASES, ids=[case[0] for case in CASES])
def test_as_in_torch(name: str, function: Callable[..., Any], given: Sequence[Array]) -> None:
    given = [x.copy() for x in given]
    leaves = [torch.from_numpy(x.copy()).requires_grad_() for x in given]
    made = function(*leaves)
    seed = torch.arange(1, made.numel() + 1, dtype=torch.float32).reshape(made.shape)
    if made.requires_grad:  # not what counts
        made.backward(seed)
    want = [torch.zeros_like(x) if x.grad is None else x.grad + 0 for x in leaves]
    spec = bslite.from_torch(Fn(function).eval(), [torch.from_numpy(x) for x in given])
    joint = bslite.gradient(spec, [i.name for i in spec.inputs], unit=False)
    seeds = [seed.numpy()][: len(joint.inputs) - len(given)]
    for found in (bslite.run(joint, [*given, *seeds]), reference.run(joint, [*given, *seeds], np.float32)):
        for own, theirs in zip(found[1:], want, strict=True):
            np.testing.assert_allclose(own, theirs.numpy(force=True), rtol=2e-4, atol=1e-5)
