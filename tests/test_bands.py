"""Depth-first within an image: bands of rows give the same bits, their rows are those that are needed."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from helpers import Array
from hypothesis import given, settings
from hypothesis import strategies as st

import bslite
from bslite import GraphBuilder, ModelSpec, reference
from bslite.engines.cpu.detect import detect
from bslite.frontends.architectures.random_weights import random_state_dict
from bslite.ops import RowMap
from bslite.passes import fuse, simplify
from bslite.plan import Plan, banding, build_plan
from bslite.plan.bands import input_rows, share
from bslite.plan.json import from_json, to_json


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prices under which every run that can be taken in bands is, however small."""
    monkeypatch.setattr(banding, "WORTH", 0)
    monkeypatch.setattr(banding, "SYNC", 1e9)
    monkeypatch.setattr(banding, "LONGEST", 6)
    monkeypatch.setattr(banding, "ROUNDS", (1, 3, 8))


def images(batch: int, size: tuple[int, int]) -> Array:
    return np.random.default_rng(batch).standard_normal((batch, 3, *size)).astype(np.float32)


def plan_of(spec: ModelSpec, shape: tuple[int, ...], threads: int = 2) -> Plan:
    return build_plan(simplify(spec), [shape], detect(threads))


def bands_of(plan: Plan) -> list[int]:
    """Numbers of bands of all stacks, those within stacks included."""
    steps = [s for s in plan.steps if s.bands]
    return [len(s.bands) for s in steps] + [n for s in steps for p in s.plans for n in bands_of(p)]


@pytest.mark.parametrize(
    "arch",
    ["resnet18", "densenet121", "mobilenet_v2", "squeezenet1_1", "efficientnet_b0", "vgg11", "alexnet"],
)
@pytest.mark.parametrize("size", [(96, 96), (101, 75)], ids=str)
@pytest.mark.usefixtures("eager")
def test_same_bits_as_layer_by_layer(arch: str, size: tuple[int, int]) -> None:
    spec = bslite.from_state_dict(arch, random_state_dict(arch, 0, 10))
    assert max(bands_of(plan_of(spec, (1, 3, *size)))) > 1
    for batch in (1, 3):
        x = images(batch, size)
        want = bslite.run(spec, x, layerwise=True).tobytes()
        for threads in (1, 2):
            assert bslite.run(spec, x, threads=threads).tobytes() == want


def test_networks_of_full_size_are_taken_in_bands() -> None:
    """With the prices as they are, on a machine with 2 MB of L2: no test of the prices, but that there are
    some.
    """
    machine = dataclasses.replace(detect(2), l2=2 << 20)
    for arch in ("mobilenet_v2", "squeezenet1_1", "densenet121"):
        spec = simplify(bslite.from_state_dict(arch, random_state_dict(arch)))
        alone = build_plan(spec, [(1, 3, 224, 224)], machine)
        many = build_plan(spec, [(16, 3, 224, 224)], machine)
        assert bands_of(alone), arch
        assert max(bands_of(many)) > 1, arch  # within the stacks of images
        again = build_plan(spec, [(1, 3, 224, 224)], machine)
        assert to_json(again) == to_json(alone)
        assert from_json(to_json(alone)) == alone


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_chains_of_windows(data: st.DataObject) -> None:
    """Convolutions and pools of any size, stride, padding and dilation, sums and concats between them."""
    rng = np.random.default_rng(0)
    g = GraphBuilder("chain")
    height, width = data.draw(st.integers(9, 40)), data.draw(st.integers(7, 20))
    value, channels = g.input("x", (1, 3, height, width)), 3
    kept: list[tuple[str, int]] = []
    for i in range(data.draw(st.integers(2, 6))):
        kinds = ["conv", "depthwise", "max", "avg", "relu", "concat", "add", "norm"]
        kind = data.draw(st.sampled_from(kinds))
        same = [name for name, c in kept if c == channels]
        if kind in ("conv", "depthwise"):
            k = data.draw(st.sampled_from([1, 2, 3, 5]))
            out = channels if kind == "depthwise" else data.draw(st.sampled_from([4, 16, 19]))
            groups = channels if kind == "depthwise" else 1
            shape = (out, channels // groups, k, k)
            g.params[f"w{i}"] = rng.standard_normal(shape).astype(np.float32)
            pads = tuple(data.draw(st.integers(0, k)) for _ in range(4))
            stride = data.draw(st.sampled_from([1, 1, 2, 3]))
            attrs: dict[str, Any] = {"padding": pads, "stride": stride, "groups": groups}
            attrs["dilation"] = data.draw(st.sampled_from([1, 1, 2]))
            value = g.add("conv2d", f"n{i}", value, params={"weight": f"w{i}"}, **attrs)
            channels, kept = out, [] if stride > 1 or pads != (k // 2,) * 4 or k % 2 == 0 else kept
            kept = kept if attrs["dilation"] == 1 else []
        elif kind in ("max", "avg"):
            k = data.draw(st.sampled_from([2, 3]))
            pads = (data.draw(st.integers(0, k // 2)),) * 2 + (data.draw(st.integers(0, k // 2)),) * 2
            stride = data.draw(st.integers(1, 2))
            value = g.add(f"{kind}_pool2d", f"n{i}", value, kernel=k, stride=stride, padding=pads)
            kept = []
        elif kind == "relu":
            value = g.add("relu", f"n{i}", value)
        elif kind == "norm":
            for role in ("running_mean", "running_var"):
                g.params[f"{role}{i}"] = rng.uniform(0.5, 1, channels).astype(np.float32)
            params = {role: f"{role}{i}" for role in ("running_mean", "running_var")}
            value = g.add("batch_norm", f"n{i}", value, params=params)
        elif kind == "concat" and kept:
            other, more = kept[-1]
            value, channels = g.add("concat", f"n{i}", value, other, axis=1), channels + more
        elif kind == "add" and same:
            value = g.add("add", f"n{i}", value, same[-1])
        kept.append((value, channels))
    try:
        spec = g.build(value)
        x = images(1, (height, width))
        want = bslite.run(spec, x, layerwise=True)
    except bslite.SpecError:
        return  # the image grew too small for its windows
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(banding, "WORTH", 0)
        patch.setattr(banding, "SYNC", 1e9)
        for threads in (2, 1):
            np.testing.assert_array_equal(bslite.run(spec, x, threads=threads), want)
    exact = reference.run(spec, [x], np.float64)[0]
    np.testing.assert_allclose(want, exact, rtol=1e-3, atol=1e-3 * float(abs(exact).max() + 1e-9))


@pytest.mark.usefixtures("eager")
def test_values_that_leave_and_enter_in_the_middle() -> None:
    """Outputs from within a run, a residual from before it, a broadcast, a constant."""
    rng = np.random.default_rng(0)
    g = GraphBuilder("ends")
    x = g.input("x", ("N", 3, "H", "W"), (1, 3, 40, 20))
    g.params["w"] = rng.standard_normal((3, 3, 3, 3)).astype(np.float32)
    g.params["c"] = rng.standard_normal((1, 3, 1, 1)).astype(np.float32)
    c = g.add("constant", "c", params={"value": "c"})
    first = g.add("conv2d", "first", x, params={"weight": "w"}, padding=1)
    shifted = g.add("mul", "shifted", first, c)
    second = g.add("conv2d", "second", shifted, params={"weight": "w"}, padding=1)
    summed = g.add("relu", "act", g.add("add", "residual", second, first))
    third = g.add("conv2d", "third", summed, params={"weight": "w"}, padding=(0, 1, 2, 1), stride=(2, 1))
    joined = g.add("concat", "joined", summed, x, shifted, axis=1)
    spec = g.build(joined, first, third, summed)
    assert bands_of(plan_of(spec, (1, 3, 40, 20)))
    data = images(1, (40, 20))
    want = bslite.run(spec, data, layerwise=True)
    for threads in (1, 2):
        got = bslite.run(spec, data, threads=threads)
        assert [y.tobytes() for y in got] == [y.tobytes() for y in want]


def test_twenty_runs_give_one_answer() -> None:
    """With the prices as they are: bands, shares and stolen items differ from run to run, the bits do not."""
    spec = bslite.from_state_dict("mobilenet_v2", random_state_dict("mobilenet_v2", 0, 10))
    for batch in (1, 5):
        x = images(batch, (160, 160))
        found = {bslite.run(spec, x, threads=threads).tobytes() for threads in (2, 1) for _ in range(20)}
        assert found == {bslite.run(spec, x, layerwise=True).tobytes()}


@pytest.mark.usefixtures("eager")
def test_nan_and_infinities_come_through() -> None:
    spec = bslite.from_state_dict("squeezenet1_1", random_state_dict("squeezenet1_1", 0, 10))
    x = images(1, (64, 64))
    x[0, 0, 3, 5], x[0, 1, 40, 40] = np.nan, np.inf
    want = bslite.run(spec, x, layerwise=True)
    assert np.isnan(want).any()
    np.testing.assert_array_equal(bslite.run(spec, x, threads=2), want)


@given(st.integers(1, 60), st.integers(1, 60))
def test_shares_cover_the_image_once(height: int, bands: int) -> None:
    rows = [r for band in range(bands) for r in range(*share(height, band, bands))]
    assert rows == list(range(height))


@given(st.integers(1, 50), st.integers(1, 4), st.integers(0, 4), st.integers(1, 9), st.data())
def test_input_rows_are_those_read(
    height: int, stride: int, before: int, extent: int, data: st.DataObject
) -> None:
    out = max(1, (height + 2 * before - extent) // stride + 1)
    first = data.draw(st.integers(0, out - 1))
    last = data.draw(st.integers(first + 1, out))
    a, z = input_rows((first, last), RowMap(stride, before, extent), out, height)
    read = {
        r
        for p in range(first, last)
        for r in range(p * stride - before, p * stride - before + extent)
        if 0 <= r < height
    }
    assert 0 <= a < z <= height
    assert read <= set(range(a, z))
    assert z - a <= (last - first - 1) * stride + extent


def test_a_layer_that_reads_the_whole_image_is_not_banded() -> None:
    g = GraphBuilder("whole")
    x = g.input("x", (1, 3, 64, 64))
    x = g.add("relu", "a", x)
    x = g.add("adaptive_avg_pool2d", "pool", x, output_size=(4, 4))
    spec = g.build(g.add("sigmoid", "b", x))
    shapes = spec.infer_shapes([(1, 3, 64, 64)])
    able = {layer.name: banding.can_band(layer, spec, shapes) for layer in fuse(spec)}
    assert able == {"a": True, "b": False}  # the sigmoid is in the pool's store
