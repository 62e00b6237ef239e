"""What each rule says, of networks and cores for which it can be worked out by hand."""

import itertools

import numpy as np
import pytest
from support.graphs import Graph

from bslite.machine import Machine
from bslite.parallelism.rules import openvino, rules
from bslite.parallelism.setting import Setting, few_threads, space, teams
from bslite.parallelism.width import Width
from bslite.spec import ModelSpec

MACHINE = Machine(l2=1 << 20)


def products(*features: int) -> ModelSpec:
    """Fully connected layers one after the other."""
    g = Graph()
    x = g.input("x", ("N", features[0]))
    for i, (n, m) in enumerate(itertools.pairwise(features)):
        x = g("linear", f"fc{i}", x, weight=np.zeros((m, n), np.float32))
    return g.build(x)


def convolutions(*kernels: int) -> ModelSpec:
    """Convolutions of 8 channels that keep the image."""
    g = Graph()
    x = g.input("x", ("N", 8, "H", "W"), (1, 8, 16, 16))
    for i, k in enumerate(kernels):
        x = g("conv2d", f"c{i}", x, weight=np.zeros((8, 8, k, k), np.float32), padding=k // 2)
    return g.build(x)


def said(spec: ModelSpec, batch: int, cores: int, dots: bool = False) -> tuple[int, int]:
    shapes = spec.infer_shapes([(batch, *spec.inputs[0].example[1:])])
    rule = openvino(spec, shapes, cores, MACHINE, dots)
    return rule.streams, rule.threads


@pytest.mark.parametrize(
    ("width", "cores", "wanted"),
    [
        (Width(58, 22), 24, (3, 8)),
        (Width(95, 48), 24, (2, 12)),
        (Width(54, 50), 24, (1, 24)),
        (Width(58, 22), 2, (2, 1)),
        (Width(58, 22), 1, (1, 1)),
        (Width(58, 22), 16, (3, 5)),
    ],
)
def test_by_width(width: Width, cores: int, wanted: tuple[int, int]) -> None:
    spec = products(4, 4)
    found = {r.name: r for r in rules(spec, spec.infer_shapes([(1, 4)]), width, cores, MACHINE, False)}
    assert (found["width"].streams, found["width"].threads) == wanted
    assert (found["intel"].streams, found["intel"].threads) == (2, cores)
    assert (found["tensorflow"].streams, found["tensorflow"].threads) == (cores, cores)


def test_openvino_small_layers_get_a_stream_for_each_core() -> None:
    # 4 bytes x (1000 + 1000) of 1 MiB: L2 holds 131 times as much.
    assert said(products(1000, 1000), 1, 8) == (8, 1)


def test_openvino_large_layers_get_a_few_threads_each() -> None:
    spec = products(1000, 1000)
    batch = 300  # 2.4 MB: L2 holds 0.44 of it, at most a half
    assert said(spec, batch, 48) == (12, 4)
    assert said(spec, batch, 9) == (3, 3)
    assert said(spec, batch, 8) == (4, 2)  # of 4 threads, halved until the streams are no fewer
    assert said(spec, batch, 10) == (5, 2)
    assert said(spec, batch, 7) == (2, 3)
    assert said(spec, batch, 4) == (2, 2)
    assert said(spec, batch, 8, dots=True) == (8, 1)  # above a quarter, the limit of such a processor


def test_openvino_convolutions_of_three_by_three_are_arithmetic() -> None:
    assert said(convolutions(3, 5), 1000, 8) == (8, 1)
    assert said(convolutions(3, 1), 1000, 8) == (4, 2)  # 16 MB through the 1x1


def test_openvino_without_a_known_layer_falls_back() -> None:
    g = Graph()
    assert said(g.build(g("relu", "r", g.input("x", ("N", 4)))), 1, 8) == (4, 2)


@pytest.mark.parametrize("cores", [1, 2, 3, 4, 7, 16, 48])
def test_the_space_holds_every_way_to_divide_the_cores(cores: int) -> None:
    found = space("throughput", cores, (1, 4))
    assert len(set(found)) == len(found)
    assert all(s.used <= cores for s in found)
    for p in range(1, cores + 1):
        assert any((s.streams, s.threads) == (p, cores // p) for s in found) or any(
            s.threads == cores // p and s.streams > p for s in found
        )
    assert [s.threads for s in space("latency", cores, (1,))] == teams(cores)
    assert {s.streams for s in space("latency", cores, (1,))} == {1}
    assert set(few_threads("throughput", cores, 3)) <= set(range(1, cores + 1))
    assert {1, cores} <= set(few_threads("throughput", cores, 3))


def test_settings_read_well() -> None:
    assert str(Setting(4, 3, 8)) == "batch 4, 3 x 8"
    assert Setting(4, 3, 8).used == 24
