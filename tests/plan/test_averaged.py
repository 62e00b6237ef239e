"""Average pools go before pointwise convolutions: the same results, of fewer products."""

from typing import Any

import numpy as np
import pytest
from plan.test_enlarged import Net, check_images

from bslite.passes import simplify
from bslite.passes.averaged import pool_first

SIZE = (8, 6)


def pooled(b: Net, c: int = 64, k: int = 32, pool: str = "avg_pool2d", size: Any = SIZE, **attrs: Any) -> str:
    attrs = attrs or {"kernel": 2}
    return b.add(pool, "pool", b.conv(b.image("x", c, size), c, k, *(1,) * len(size)), **attrs)


FIRST: dict[str, Any] = {
    "halved": lambda b: pooled(b),
    "windows that overlap": lambda b: pooled(b, kernel=3, stride=2),
    "cut at the edge": lambda b: pooled(b, kernel=3, stride=2, ceil_mode=True),
    "global, any size": lambda b: pooled(b, 64, 70, "adaptive_avg_pool2d", ("H", "W"), output_size=1),
    "to a size": lambda b: pooled(b, 64, 16, "adaptive_avg_pool2d", output_size=(3, 4)),
    "signal": lambda b: pooled(b, 96, 20, "avg_pool1d", (9,), kernel=3),
    "volume": lambda b: pooled(b, 64, 20, "avg_pool3d", (4, 6, 4), kernel=2),
}


@pytest.mark.parametrize("name", FIRST)
def test_the_pool_goes_first(name: str) -> None:
    b = Net("pool")
    spec = b.build(FIRST[name](b))
    first, second = simplify(spec).nodes
    assert "avg_pool" in first.op
    assert (second.name, second.op.startswith("conv")) == ("pool", True)
    check_images(spec)


def test_a_transition_between_blocks() -> None:
    """Of DenseNet: a norm before it stays in front, one behind it is folded into the weights."""
    b = Net("transition")
    for name, channels in (("before", 64), ("behind", 32)):
        for role, number in (("weight", 1.5), ("bias", 0.1), ("running_mean", 0.3), ("running_var", 2)):
            b.params[f"{name}.{role}"] = np.full(channels, number, np.float32)

    def norm(x: str, name: str) -> str:
        keys = {k.removeprefix(f"{name}."): k for k in b.params if k.startswith(f"{name}.")}
        return b.add("batch_norm", name, x, params=keys)

    active = b.add("relu", "relu", norm(b.image("x", 64), "before"))
    made = norm(b.conv(active, 64, 32, 1, 1, bias=False), "behind")
    spec = b.build(b.add("avg_pool2d", "pool", made, kernel=2))
    assert [n.op for n in simplify(spec).nodes] == ["batch_norm", "relu", "avg_pool2d", "conv2d"]
    check_images(spec)


LEFT: dict[str, Any] = {
    "padding": lambda b: pooled(b, kernel=3, stride=2, padding=1),
    "another divisor": lambda b: pooled(b, kernel=2, divisor_override=3),
    "as many pixels": lambda b: pooled(b, kernel=1),
    "more pixels": lambda b: pooled(b, 64, 16, "adaptive_avg_pool2d", output_size=(9, 9)),
    "few inputs": lambda b: pooled(b, c=48),
    "few outputs": lambda b: pooled(b, k=15),
    "of maxima": lambda b: pooled(b, pool="max_pool2d", kernel=2),
    "3x3": lambda b: b.add("avg_pool2d", "p", b.conv(b.image("x", 64, SIZE), 64, 32, 3, 3), kernel=2),
    "strided": lambda b: b.add(
        "avg_pool2d", "p", b.conv(b.image("x", 64, SIZE), 64, 32, 1, 1, stride=2), kernel=2
    ),
    "read by others, too": lambda b: b.add(
        "mul", "m", (y := b.conv(b.image("x", 64, SIZE), 64, 32, 1, 1)),
        b.add("adaptive_avg_pool2d", "p", y, output_size=1),
    ),
    "an activation between": lambda b: b.add(
        "avg_pool2d", "p", b.add("relu", "r", b.conv(b.image("x", 64, SIZE), 64, 32, 1, 1)), kernel=2
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_other_pools_stay(name: str) -> None:
    b = Net("left")
    spec = b.build(LEFT[name](b))
    assert pool_first(spec) is spec
