"""Training image by image: what is stacked between two sums over a batch, and that its answers stay right."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from support.check import Array, assert_three_way
from support.graphs import Graph, network
from support.noise import noise
from torch import nn

import bslite
from bslite import ModelSpec, reference
from bslite.machine import Machine
from bslite.passes import fuse, simplify
from bslite.plan import Plan, build_plan
from bslite.plan.cpu.phases import images_of, in_phases

pytestmark = pytest.mark.usefixtures("images")


class Unit(nn.Sequential):
    """Convolution, batch norm and activation."""

    def __init__(self, a: int, b: int, k: int = 1, act: nn.Module | None = None, **how: Any) -> None:
        conv = nn.Conv2d(a, b, k, padding=how.get("dilation", 1) * (k // 2), bias=False, **how)
        super().__init__(conv, nn.BatchNorm2d(b), act or nn.ReLU6())


class Sum(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x)


class Mean(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3))


NETS = {
    "depthwise": lambda: [
        Unit(3, 24, 3, stride=2), Unit(24, 24, 3, groups=24), Sum(Unit(24, 24)), Unit(24, 40),
        Unit(40, 40, 5, stride=2, groups=40), Unit(40, 17, act=nn.Identity()),
    ],
    "dense": lambda: [
        Unit(3, 16, 3), Sum(Unit(16, 16, 3, nn.ReLU())), nn.MaxPool2d(3, 2, 1), Unit(16, 24, 3, nn.SiLU()),
        nn.AvgPool2d(2), Unit(24, 8, 3),
    ],
    "grouped": lambda: [
        Unit(3, 16, 3), Unit(16, 16, 3, nn.Hardswish(), groups=4), Unit(16, 24, 3, dilation=2),
        nn.ConvTranspose2d(24, 12, 2, 2), nn.BatchNorm2d(12), nn.ReLU(),
    ],
}  # fmt: skip


ALSO = {
    "depthwise": ["DepthwiseUpdate", "BatchProducts"],
    "dense": ["BatchProducts", "PoolGrad"],
    "grouped": [],
}


def made(kind: str) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*NETS[kind](), Mean())


def joint(spec: ModelSpec, batch: int) -> tuple[ModelSpec, list[Array]]:
    """Forward and backward of a training step, and its inputs."""
    opened = bslite.weights_as_inputs(spec, training=True)
    names = [i.name for i in opened.inputs if i.name in spec.params]
    shapes = [(batch if i.shape[0] == "N" else i.example[0], *i.example[1:]) for i in opened.inputs]
    both = bslite.gradient(opened, names, shapes, opened.labels[:1])
    named = zip(both.inputs, [*shapes, *(i.example for i in both.inputs[len(shapes) :])], strict=True)
    return both, [spec.params[i.name] if i.name in names else noise(*shape, seed=1) for i, shape in named]


def plan_of(spec: ModelSpec, given: list[Array], threads: int = 2) -> Plan[Any]:
    return build_plan(simplify(spec), [x.shape for x in given], Machine(threads=threads))


def inside(plan: Plan[Any]) -> list[list[str]]:
    """The kernels of each stack."""
    deep = [step.inner for step in plan.steps if step.inner is not None and not step.tiled]
    return [[type(step.record).__name__ for step in plan.steps] for plan in deep]


@pytest.mark.parametrize("kind", NETS)
def test_gradients_of_stacks_are_those_of_torch(kind: str) -> None:
    net, batch = made(kind), 4
    spec = bslite.from_torch(net.eval(), (torch.zeros(batch, 3, 97, 80),))
    both, given = joint(spec, batch)
    kernels = set(itertools.chain(*inside(plan_of(both, given))))
    assert kernels >= {"WeightUpdate", "ChannelMoments", "BatchGradient", *ALSO[kind]}
    assert "PackPanels" not in kernels  # weights are packed once for all images
    two, one = (bslite.run(both, given, threads=t) for t in (2, 1))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(one, two, strict=True))
    names = [name for name, _ in net.named_parameters()]
    wanted = {}
    for dtype in torch.float64, torch.float32:
        again = made(kind).to(dtype).train()
        out = again(torch.from_numpy(given[0]).to(dtype))
        out.backward(torch.from_numpy(given[-1]).to(dtype))
        wanted[dtype] = {name: p.grad.numpy() for name, p in again.named_parameters()}
    for name in names:
        got = two[both.labels.index(f"d/{name}")]
        assert_three_way(got, wanted[torch.float32][name], wanted[torch.float64][name], least=1e-6)


@pytest.mark.parametrize("arch", ["mobilenet_v2", "densenet121", "resnet18"])
def test_a_step_of_a_network(arch: str) -> None:
    both, given = joint(network(arch, size=64), 4)
    assert len(inside(plan_of(both, given))) > 5
    two, one = (bslite.run(both, given, threads=t) for t in (2, 1))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(one, two, strict=True))
    whole = bslite.run(both, given, threads=2, layerwise=True)
    for label, a, b in zip(both.labels, two, whole, strict=True):
        assert np.linalg.norm(a - b) <= 1e-3 * np.linalg.norm(b) + 1e-6, label


def test_fewer_images_than_threads_go_together() -> None:
    both, given = joint(network("mobilenet_v2", size=64), 4)
    assert inside(plan_of(both, given, 4))
    assert not inside(plan_of(both, given, 5))


def test_a_value_that_one_layer_reads_by_image_and_another_whole() -> None:
    """The same value is images for two convolutions, and the filter of two."""
    g = Graph()
    x, w = g.input("x", (4, 4, 33, 33)), g.input("w", (4, 4, 3, 3))
    seen = g("relu", "seen", x)
    a = g("conv2d_given", "a", seen, w, padding=1)
    b = g("conv2d_given", "b", a, seen, padding=16)
    c = g("conv2d_given", "c", seen, seen, padding=16)
    spec = g.build(g("batch_stats", "stats", g("add", "d", b, c)), a)
    data = [noise(4, 4, 33, 33), noise(4, 4, 3, 3)]
    assert inside(plan_of(spec, data))
    got, want = bslite.run(spec, data), bslite.run(spec, data, layerwise=True)
    assert [y.tobytes() for y in got] == [y.tobytes() for y in want]


def test_phases_keep_the_order_of_what_depends() -> None:
    both, given = joint(network("mobilenet_v2", size=64), 4)
    spec = simplify(both)
    shapes, layers = spec.infer_shapes([x.shape for x in given]), fuse(spec)
    images = images_of(layers, spec, shapes, 2)
    assert images is not None
    assert images.batch == 4
    order, runs = in_phases(layers, images, Machine(threads=2), spec.outputs)
    assert (order, runs) == in_phases(layers, images, Machine(threads=1), spec.outputs)
    assert sorted(x.name for x in order) == sorted(x.name for x in layers)
    seen = {i.name for i in spec.inputs}
    for layer in order:
        assert seen.issuperset(layer.inputs), layer.name
        seen.add(layer.name)
    assert len(runs) > 10
    for start, stop in runs:
        mine = order[start:stop]
        sums = {x.name for x in mine if x.node.declaration.sums_images}
        assert all(map(images.apart, mine))
        assert all(sums.isdisjoint(x.inputs) for x in mine)


def test_statistics_alone_are_right_in_a_stack() -> None:
    """A sum of images that is an output, of a value that leaves the stack, too."""
    g = Graph()
    x = g.input("x", ("N", 20, 64, 64), (6, 20, 64, 64))
    y = g("conv2d", "y", x, weight=noise(16, 20, 1, 1))
    spec = g.build(g("batch_stats", "stats", y), y)
    data = noise(6, 20, 64, 64)
    assert [kernels[-2:] for kernels in inside(plan_of(spec, [data]))] == [["Conv", "ChannelMoments"]]
    for threads in (1, 2):
        for got, want in zip(
            bslite.run(spec, data, threads=threads), reference.run(spec, [data]), strict=True
        ):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("kernel", "how"),
    [
        (3, {"stride": 2, "padding": 1, "output_padding": 1}),
        (5, {"stride": (3, 2), "padding": 2}),
        (2, {"stride": (1, 3), "padding": 0}),
        ((1, 4), {"stride": (4, 4), "padding": 0, "output_padding": (3, 0)}),
    ],
)
def test_phases_of_a_large_image_go_by_bands_of_rows(kernel: Any, how: dict[str, Any]) -> None:
    rows, cols = np.broadcast_to(kernel, 2)
    g = Graph()
    x = g.input("x", ("N", 40, 75, 66), (3, 40, 75, 66))
    weights = {"weight": noise(40, 1, rows, cols), "bias": noise(40, seed=1)}
    spec = g.build(g("conv_transpose2d", "y", x, groups=40, **weights, **how))
    data = noise(3, 40, 75, 66)
    one = bslite.run(spec, data, threads=1)
    assert len(plan_of(spec, [data], 1).steps) > 12
    assert one.tobytes() == bslite.run(spec, data, threads=2, layerwise=True).tobytes()
    np.testing.assert_allclose(one, reference.run(spec, [data])[0], rtol=1e-4, atol=1e-4)
