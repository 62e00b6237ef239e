"""pytest-benchmark over the shapes that matter: ``pytest -n 0 benchmarks --benchmark-only``.

Each case is a model of one layer run by the engine, so it includes what a call costs, and reports the rate
reached (``gflops``, ``gbytes`` per second) beside the time.
"""

from typing import Any

import numpy as np
import pytest

from bslite import api
from bslite.cli.warmup import hollow
from bslite.frontends.weights.architectures.random_weights import random_state_dict
from bslite.frontends.weights.state_dict import from_state_dict
from bslite.spec import GraphBuilder, ModelSpec
from bslite.spec.table import layer_rows


def convolutions(arch: str) -> list[tuple[int, ...]]:
    """A network's distinct convolutions: channels in, out, kernel, stride, input side."""
    spec = hollow(arch)
    shapes = spec.infer_shapes([i.example for i in spec.inputs])
    found: dict[tuple[int, ...], None] = {}
    for node in spec.nodes:
        if node.op == "conv2d":
            out, _, kernel, _ = spec.node_params(node)["weight"].shape
            _, channels, side, _ = shapes[node.inputs[0]]
            found[channels, out, kernel, node.attrs["stride"][0], side] = None
    return list(found)


#: Depthwise convolutions of MobileNet v2 (3x3) and EfficientNet (5x5): channels, kernel, stride, input side.
DEPTHWISE = [
    (32, 3, 1, 112),
    (96, 3, 2, 112),
    (144, 3, 1, 56),
    (192, 3, 1, 28),
    (384, 3, 1, 14),
    (960, 3, 1, 7),
    (144, 5, 2, 56),
    (240, 5, 1, 28),
    (480, 5, 1, 14),
    (672, 5, 2, 14),
    (1152, 5, 1, 7),
]
WITHOUT_WEIGHTS: dict[str, dict[str, Any]] = {
    "max_pool2d": {"kernel": 3, "stride": 2, "padding": 1},
    "avg_pool2d": {"kernel": 2, "stride": 2},
    "adaptive_avg_pool2d": {"output_size": (1, 1)},
    "relu": {},
    "silu": {},
    "gelu": {},
    "softmax": {"axis": 1},
}
NETS = ["resnet18", "resnet50", "squeezenet1_1", "mobilenet_v2", "densenet121"]


def one_layer(op: str, shape: tuple[int, ...], weight: tuple[int, ...] = (), **attrs: Any) -> ModelSpec:
    """A model of a single op, with weights if it takes any."""
    g = GraphBuilder(op)
    x = g.input("x", ("N", *shape[1:]), shape)
    params = {}
    if weight:
        g.params["weight"] = np.random.default_rng(0).standard_normal(weight, np.float32)
        params = {"weight": "weight"}
    return g.build(g.add(op, "layer", x, params=params, **attrs))


def measure(benchmark: Any, spec: ModelSpec, batch: int = 1) -> None:
    """Time the engine on one random input, its first run not counted."""
    shape = (batch, *spec.inputs[0].example[1:])
    x = np.random.default_rng(1).standard_normal(shape, np.float32)
    api.run(spec, x)
    benchmark(api.run, spec, x)
    if benchmark.stats is not None:  # None where benchmarks are disabled
        rows = layer_rows(spec, [shape])
        seconds = benchmark.stats.stats.median
        benchmark.extra_info["gflops"] = round(sum(r.flops for r in rows) / seconds / 1e9, 1)
        benchmark.extra_info["gbytes"] = round(sum(r.traffic for r in rows) / seconds / 1e9, 1)


@pytest.mark.benchmark(group="convolution")
@pytest.mark.parametrize(
    "case", convolutions("resnet50"), ids=lambda c: f"{c[0]}-{c[1]} {c[2]}x{c[2]}/{c[3]} on {c[4]}"
)
def test_convolution(benchmark: Any, case: tuple[int, int, int, int, int]) -> None:
    channels, out, kernel, stride, side = case
    weight = (out, channels, kernel, kernel)
    shape = (1, channels, side, side)
    measure(benchmark, one_layer("conv2d", shape, weight, stride=stride, padding=kernel // 2))


@pytest.mark.benchmark(group="depthwise convolution")
@pytest.mark.parametrize("case", DEPTHWISE, ids=lambda c: f"{c[0]} {c[1]}x{c[1]}/{c[2]} on {c[3]}")
def test_depthwise(benchmark: Any, case: tuple[int, int, int, int]) -> None:
    channels, kernel, stride, side = case
    weight, shape = (channels, 1, kernel, kernel), (1, channels, side, side)
    measure(
        benchmark, one_layer("conv2d", shape, weight, stride=stride, padding=kernel // 2, groups=channels)
    )


@pytest.mark.benchmark(group="fully connected")
@pytest.mark.parametrize("batch", [1, 16])
@pytest.mark.parametrize("sizes", [(2048, 1000), (9216, 4096), (4096, 4096)], ids=str)
def test_linear(benchmark: Any, sizes: tuple[int, int], batch: int) -> None:
    measure(benchmark, one_layer("linear", (1, sizes[0]), sizes[::-1]), batch)


@pytest.mark.benchmark(group="pooling and elementwise")
@pytest.mark.parametrize("op", WITHOUT_WEIGHTS)
def test_without_weights(benchmark: Any, op: str) -> None:
    measure(benchmark, one_layer(op, (1, 64, 112, 112), **WITHOUT_WEIGHTS[op]))


@pytest.mark.benchmark(group="networks")
@pytest.mark.parametrize("batch", [1, 16])
@pytest.mark.parametrize("arch", NETS)
def test_network(benchmark: Any, arch: str, batch: int) -> None:
    measure(benchmark, from_state_dict(arch, random_state_dict(arch)), batch)
