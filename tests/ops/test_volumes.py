"""Networks over signals and volumes, three-way layer by layer; where values lie in them; fusing."""

from typing import Any

import numpy as np
import pytest
from support.graphs import Graph, one_op
from support.kernel_checks import check
from support.networks import networks
from support.noise import noise
from support.torch_modules import nn, torch
from support.torchvision_models import alive, model

import bslite
from bslite import ModelSpec, from_torch
from bslite.machine import Machine
from bslite.passes import fuse, simplify
from bslite.plan import build_plan


def video(name: str) -> Any:
    module = model(name, num_classes=30)
    if name == "s3d":
        module.avgpool = nn.AvgPool3d((2, 2, 2), stride=1).eval()  # its own takes images of 224 x 224
    return module


VIDEO = {"r3d_18": 8, "mc3_18": 8, "r2plus1d_18": 8, "s3d": 16}


class Wave(nn.Module):
    """A conv1d network as for sound: strided stem, dilated residual blocks, depthwise, pools."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv1d(1, 24, 16, 4, 6), nn.BatchNorm1d(24), nn.ReLU())
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(24, 48, 3, padding=d, dilation=d, bias=False), nn.BatchNorm1d(48), nn.GELU(),
                nn.Conv1d(48, 48, 5, padding=2, groups=48), nn.BatchNorm1d(48), nn.Conv1d(48, 24, 1),
            )
            for d in (1, 3, 9)
        )  # fmt: skip
        self.pool = nn.MaxPool1d(3, 2, 1)
        self.norm = nn.GroupNorm(4, 24)
        self.head = nn.Sequential(nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(24, 10))

    def forward(self, x: Any) -> Any:
        x = self.pool(self.stem(x))
        for block in self.blocks:
            x = torch.relu(x + block(x))
        return self.head(self.norm(x))


class UNet(nn.Module):
    """Down by strides, up by transposed convolutions, skips concatenated; of images or volumes."""

    def __init__(self, axes: int) -> None:
        super().__init__()
        names = ("Conv", "ConvTranspose", "BatchNorm", "MaxPool")
        conv, up, norm, pool = (getattr(nn, f"{name}{axes}d") for name in names)

        def block(c: int, k: int) -> Any:
            return nn.Sequential(conv(c, k, 3, padding=1, bias=False), norm(k), nn.ReLU())

        self.one, self.two, self.three = block(3, 16), block(16, 32), block(32, 48)
        self.pool = pool(2)
        self.up_two, self.up_one = up(48, 32, 2, 2), nn.Sequential(up(32, 16, 4, 2, 1), norm(16), nn.ReLU())
        self.two_again, self.one_again = block(64, 32), block(32, 16)
        self.head = conv(16, 5, 1)

    def forward(self, x: Any) -> Any:
        one = self.one(x)
        two = self.two(self.pool(one))
        y = self.up_two(self.three(self.pool(two)))
        y = self.up_one(self.two_again(torch.cat([two, y], 1)))
        return self.head(self.one_again(torch.cat([one, y], 1)))


def passes(module: Any, *shape: int) -> ModelSpec:
    """Layer by layer as near to float64 as float32 is, the outputs as near as torch's."""
    x = torch.randn(shape, generator=torch.manual_seed(1))
    spec = from_torch(module, x)
    found = bslite.verify(spec, x, module=module)
    assert found.passed, str(found)
    assert len(found.layers) > 5
    return spec


def copies(spec: ModelSpec, *shape: int) -> list[tuple[str, ...]]:
    """The layers before which something is copied."""
    plan = build_plan(simplify(spec), [shape], Machine(threads=2))
    return [s.layers for s in plan.steps if s.kernel in ("copy", "transpose", "interleave")]


@pytest.mark.parametrize(("name", "frames"), networks(VIDEO.items()))
def test_video_networks(name: str, frames: int) -> None:
    torch.manual_seed(0)
    shape = (1, 3, frames, 64, 64)
    spec = passes(video(name), *shape)
    first = fuse(simplify(spec))[0].members
    assert copies(spec, *shape) in ([first], [first, ("outputs",)])  # the caller's planes, nothing else


def test_signals() -> None:
    torch.manual_seed(0)
    spec = passes(alive(Wave()), 2, 1, 400)
    moved = {name for layers in copies(spec, 2, 1, 400) for name in layers}
    assert moved <= {"stem.0", "stem.1", "stem.2"}


@pytest.mark.parametrize(("axes", "shape"), [(2, (2, 3, 16, 24)), (3, (1, 3, 8, 12, 16))])
def test_u_nets(axes: int, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    spec = passes(alive(UNet(axes)), *shape)
    layers = fuse(simplify(spec))
    assert sum(layer.node.op == f"conv_transpose{axes}d" for layer in layers) == 2
    assert not [layer for layer in layers if layer.node.op in ("batch_norm", "relu")]  # folded, in the store
    if axes == 3:
        assert copies(spec, *shape) == [layers[0].members]  # of the caller's planes; the store turns the end


@pytest.mark.parametrize("threads", [1, 2])
def test_batches_have_the_bits_of_single_videos(threads: int) -> None:
    torch.manual_seed(0)
    spec = from_torch(alive(UNet(3)), torch.randn(1, 3, 4, 8, 8))
    x = noise(5, 3, 4, 8, 8)
    whole = bslite.run(spec, x, threads=threads)
    for i in range(5):
        np.testing.assert_array_equal(bslite.run(spec, x[i : i + 1], threads=threads)[0], whole[i])


@pytest.mark.parametrize("op", ["conv_transpose1d", "conv_transpose2d", "conv_transpose3d"])
@pytest.mark.parametrize("groups", [1, 3])
def test_batch_norms_fold_into_transposed_convolutions(op: str, groups: int) -> None:
    axes = int(op[-2])
    graph = Graph()
    x = graph.input("x", (2, 6, *range(4, 4 + axes)))
    weight = noise(6, 12 // groups, *[3] * axes, seed=1, scale=0.3)
    y = graph(op, "up", x, weight=weight, stride=2, padding=1, groups=groups)
    y = graph(
        "batch_norm", "norm", y, weight=noise(12, seed=2), bias=noise(12, seed=3),
        running_mean=noise(12, seed=4), running_var=np.abs(noise(12, seed=5)) + np.float32(0.1),
    )  # fmt: skip
    spec = graph.build(graph("relu", "act", y))
    assert [n.op for n in simplify(spec).nodes] == [op, "relu"]
    check(spec, noise(2, 6, *range(4, 4 + axes), seed=6))


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_residuals_in_the_store(axes: int, transposed: bool) -> None:
    graph = Graph()
    shape = (2, 20, *range(4, 4 + axes))
    x = graph.input("x", shape)
    op = f"conv_transpose{axes}d" if transposed else f"conv{axes}d"
    weight = noise(20, 20, *[3] * axes, seed=1, scale=0.1)
    y = graph(op, "conv", graph("tanh", "t", x), weight=weight, padding=1)
    spec = graph.build(graph("relu", "act", graph("add", "sum", y, x)))
    assert [layer.residual for layer in fuse(spec)] == [None, "x"]
    check(spec, noise(*shape, seed=2))


def test_a_residual_in_the_store_of_phases() -> None:
    graph = Graph()
    x, r = graph.input("x", (2, 8, 5, 6)), graph.input("r", (2, 20, 11, 17))
    y = graph("conv_transpose2d", "up", x, weight=noise(8, 20, 3, 2, seed=1, scale=0.2), stride=(2, 3))
    spec = graph.build(graph("gelu", "act", graph("add", "sum", y, r)))
    assert len(fuse(spec)) == 1
    check(spec, noise(2, 8, 5, 6, seed=2), noise(2, 20, 11, 17, seed=3))


def test_branches_of_volumes_are_written_side_by_side() -> None:
    graph = Graph()
    x = graph.input("x", (2, 16, 4, 6, 5))
    parts = []
    for i, size in enumerate((1, 3)):
        weight = noise(20, 16, *[size] * 3, seed=i, scale=0.1)
        parts.append(graph("conv3d", f"c{i}", x, weight=weight, padding=size // 2))
    parts.append(graph("max_pool3d", "pool", x, kernel=3, stride=1, padding=1))
    joined = graph("concat", "join", *parts, axis=1)
    gate = graph("sigmoid", "gate", graph("adaptive_avg_pool3d", "mean", joined, output_size=1))
    gated, weight = graph("mul", "gated", joined, gate), noise(8, 56, 3, 3, 3, seed=5, scale=0.05)
    spec = graph.build(graph("conv3d", "last", gated, weight=weight, padding=1))
    check(spec, noise(2, 16, 4, 6, 5, seed=3))
    plan = build_plan(simplify(spec), [(2, 16, 4, 6, 5)], Machine(threads=2))
    moved = [s.layers for s in plan.steps if s.kernel in ("copy", "transpose")]
    assert all(layers[0] in ("c0", "c1", "pool", "outputs") for layers in moved), moved


@pytest.mark.parametrize("length", [1, 2, 255, 256, 257, 3001])
def test_means_of_long_signals(length: int) -> None:
    x = noise(2, 5, length, shift=3.0)
    check(one_op("adaptive_avg_pool1d", x, output_size=1), x)


def test_features_and_tokens_lie_as_before() -> None:
    """Only what windows work on is turned: tokens of rank 3 keep their features innermost."""
    graph = Graph()
    x = graph.input("x", (2, 9, 12))
    y = graph("gelu", "act", graph("linear", "fc", x, weight=noise(7, 12, seed=1)))
    plan = build_plan(graph.build(graph("add", "sum", y, y)), [(2, 9, 12)], Machine(threads=2))
    assert [s.kernel for s in plan.steps] == ["conv", "elementwise"]


@pytest.mark.parametrize("tall", [False, True], ids=["one line", "lines"])
@pytest.mark.parametrize("wide", [False, True], ids=["one pixel", "pixels"])
@pytest.mark.parametrize("deep", [False, True], ids=["one plane", "planes"])
def test_one_value_for_all_that_lie_beside_it_is_added_in_the_store(
    deep: bool, tall: bool, wide: bool
) -> None:
    """The sum of a layer's value and of one that is repeated along some axes: its strides there are zero, and
    so is that of images where there is one.
    """
    g, size = Graph(), (3, 4, 6)
    small = tuple(n if kept else 1 for n, kept in zip(size, (deep, tall, wide), strict=True))
    x, y = g.input("x", ("N", 8, *size), (2, 8, *size)), g.input("y", ("N", 8, *small), (2, 8, *small))
    repeated = g("expand", "all", g("conv3d", "b", y, weight=noise(20, 8, 1, 1, 1)), shape=(-1, 20, *size))
    spec = g.build(g("add", "sum", g("conv3d", "a", x, weight=noise(20, 8, 1, 1, 1)), repeated))
    assert fuse(simplify(spec))[-1].residual in ("all", "b")
    for images in (1, 2):
        check(spec, noise(images, 8, *size), noise(images, 8, *small))
