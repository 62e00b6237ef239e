"""Depth-first within an image: bands of rows give the same bits, their rows are those that are needed."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from support.check import Array
from support.graphs import Graph, network
from support.networks import networks
from support.noise import images, noise
from support.plans import open_in_the_middle, plan_of, run_tuned

import bslite
from bslite import ModelSpec, reference
from bslite.engines.cpu.detect import detect
from bslite.machine import Machine
from bslite.ops import RowMap
from bslite.passes import fuse, simplify
from bslite.plan import Plan, build_plan
from bslite.plan.core.bands import input_rows, share
from bslite.plan.cpu import banding, stacks
from bslite.plan.cpu.tuning import Banding, Tuning

#: Prices under which every run that can be taken in bands is, however small.
EAGER = Tuning(banding=Banding(longest=6, rounds=(1, 3, 8), sync=1e9, worth=0))


def bands_of(plan: Plan) -> list[int]:
    """Numbers of bands of all stacks, those within stacks included."""
    steps = [s for s in plan.steps if s.bands]
    return [len(s.bands) for s in steps] + [n for s in steps for p in s.plans for n in bands_of(p)]


NETWORKS = ("resnet18", "densenet121", "mobilenet_v2", "squeezenet1_1", "efficientnet_b0", "vgg11", "alexnet")


@pytest.mark.parametrize("arch", networks(NETWORKS))
@pytest.mark.parametrize("size", [(96, 96), (101, 75)], ids=str)
def test_same_bits_as_layer_by_layer(arch: str, size: tuple[int, int]) -> None:
    spec = network(arch)
    assert max(bands_of(plan_of(spec, (1, 3, *size), tuning=EAGER))) > 1
    for batch in (1, 3):
        x = images(batch, *size)
        want = bslite.run(spec, x, layerwise=True).tobytes()
        for threads in (1, 2):
            assert run_tuned(spec, [x], threads, EAGER)[0].tobytes() == want


def test_a_size_near_by_takes_the_runs_that_were_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search serves sizes near by, where each of its bands still has a row; those further off choose among
    its runs.
    """
    spec, searched = network("resnet18").replace(name="another"), []
    search = stacks.choose_bands

    def noted(layers: Any, spec: ModelSpec, shapes: Any, *rest: Any) -> Any:
        searched.append((shapes["x"][2:], "chosen" if rest[-1] is not None else "searched"))
        return search(layers, spec, shapes, *rest)

    monkeypatch.setattr(stacks, "choose_bands", noted)
    for size in ((96, 96), (101, 90), (84, 110), (64, 64), (81, 81), (20, 23)):
        x = images(1, *size)
        want = bslite.run(spec, x, layerwise=True)
        assert run_tuned(spec, [x], 2, EAGER)[0].tobytes() == want.tobytes()
    assert searched == [((96, 96), "searched"), ((64, 64), "chosen"), ((20, 23), "searched")]


def test_networks_of_full_size_are_taken_in_bands() -> None:
    """With the prices as they are, on a machine with 2 MB of L2: no test of the prices, but that there are
    some.
    """
    machine = dataclasses.replace(detect(2), l2=2 << 20)
    for arch in ("mobilenet_v2", "squeezenet1_1", "densenet121"):
        spec = simplify(network(arch, 1000))
        alone = build_plan(spec, [(1, 3, 224, 224)], machine)
        many = build_plan(spec, [(16, 3, 224, 224)], machine)
        assert bands_of(alone), arch
        assert max(bands_of(many)) > 1, arch  # within the stacks of images
        again = build_plan(spec, [(1, 3, 224, 224)], machine)
        assert again == alone


@pytest.mark.parametrize("batch", [3, 5])
def test_few_images_are_taken_in_bands_too(batch: int) -> None:
    """Images that are no multiple of the threads."""
    machine = dataclasses.replace(detect(2), l2=2 << 20)
    for arch in ("mobilenet_v2", "resnet18"):
        plan = build_plan(simplify(network(arch, 1000)), [(batch, 3, 224, 224)], machine)
        first = next(step for step in plan.steps if step.inner is not None)
        assert len(first.bands) > 1, arch
        assert first.items == batch * len(first.bands), arch


@pytest.mark.fuzz
@pytest.mark.parametrize("axes", [1, 2])
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_chains_of_windows(axes: int, data: st.DataObject) -> None:
    """Convolutions and pools of any size, stride, padding and dilation, sums and concats between them, of
    signals and of images.
    """
    rng = np.random.default_rng(0)
    g = Graph()
    sizes = [data.draw(st.integers(9, 40)), data.draw(st.integers(7, 20))]
    sizes = [sizes[0] * sizes[1]] if axes == 1 else sizes
    value, channels = g.input("x", (1, 3, *sizes)), 3
    kept: list[tuple[str, int]] = []
    for i in range(data.draw(st.integers(2, 6))):
        kinds = ["conv", "depthwise", "max", "avg", "relu", "concat", "add", "norm"]
        kind = data.draw(st.sampled_from(kinds))
        same = [name for name, c in kept if c == channels]
        if kind in ("conv", "depthwise"):
            k = data.draw(st.sampled_from([1, 2, 3, 5]))
            out = channels if kind == "depthwise" else data.draw(st.sampled_from([4, 16, 19]))
            groups = channels if kind == "depthwise" else 1
            weight = rng.standard_normal((out, channels // groups, *(k,) * axes)).astype(np.float32)
            pads = tuple(data.draw(st.integers(0, k)) for _ in range(2 * axes))
            stride = data.draw(st.sampled_from([1, 1, 2, 3]))
            attrs: dict[str, Any] = {"padding": pads, "stride": stride, "groups": groups}
            attrs["dilation"] = data.draw(st.sampled_from([1, 1, 2]))
            value = g(f"conv{axes}d", f"n{i}", value, weight=weight, **attrs)
            channels, kept = out, [] if stride > 1 or pads != (k // 2,) * 2 * axes or k % 2 == 0 else kept
            kept = kept if attrs["dilation"] == 1 else []
        elif kind in ("max", "avg"):
            k = data.draw(st.sampled_from([2, 3]))
            pads = sum(((data.draw(st.integers(0, k // 2)),) * axes for _ in range(2)), ())
            stride = data.draw(st.integers(1, 2))
            value = g(f"{kind}_pool{axes}d", f"n{i}", value, kernel=k, stride=stride, padding=pads)
            kept = []
        elif kind == "relu":
            value = g("relu", f"n{i}", value)
        elif kind == "norm":
            mean, var = (rng.uniform(0.5, 1, channels).astype(np.float32) for _ in range(2))
            value = g("batch_norm", f"n{i}", value, running_mean=mean, running_var=var)
        elif kind == "concat" and kept:
            other, more = kept[-1]
            value, channels = g("concat", f"n{i}", value, other, axis=1), channels + more
        elif kind == "add" and same:
            value = g("add", f"n{i}", value, same[-1])
        kept.append((value, channels))
    x = noise(1, 3, *sizes)
    try:
        spec = g.build(value)
        want = bslite.run(spec, x, layerwise=True)
    except bslite.SpecError:
        reject()  # the image grew too small for its windows
    tuning = Tuning(banding=Banding(sync=1e9, worth=0))
    for threads in (2, 1):
        np.testing.assert_array_equal(run_tuned(spec, [x], threads, tuning)[0], want)
    exact = reference.run(spec, [x], np.float64)[0]
    np.testing.assert_allclose(want, exact, rtol=1e-3, atol=1e-3 * float(abs(exact).max() + 1e-9))


def test_values_that_leave_and_enter_in_the_middle() -> None:
    spec = open_in_the_middle()
    assert bands_of(plan_of(spec, (1, 3, 40, 20), tuning=EAGER))
    data = images(1, 40, 20)
    want = bslite.run(spec, data, layerwise=True)
    for threads in (1, 2):
        got = run_tuned(spec, [data], threads, EAGER)
        assert [y.tobytes() for y in got] == [y.tobytes() for y in want]


@pytest.mark.parametrize("outputs", ["z", "z a", "z joined", "z joined b", "a z b joined"])
def test_a_part_of_a_concat_may_have_more_rows_than_it(outputs: str) -> None:
    """A convolution reads rows around those that the concat takes of the same part (GhostNet). Each band
    makes these, not all rows of the image, and the parts still lie in the concat.
    """
    rng, g = np.random.default_rng(0), Graph()

    def conv(name: str, x: str, out: int, c: int, k: int, **attrs: Any) -> str:
        weight = rng.standard_normal((out, c, k, k)).astype(np.float32)
        return g("conv2d", name, x, weight=weight, padding=(k // 2,) * 4, **attrs)

    a = conv("a", g.input("x", (1, 16, 64, 20)), 24, 16, 1)
    b = conv("b", a, 24, 1, 3, groups=24)
    joined = g("concat", "joined", a, b, axis=1)
    conv("z", conv("deep", joined, 48, 1, 5, groups=48, stride=2), 12, 48, 1)
    spec = g.build(*outputs.split())
    bands = Tuning(banding=Banding(rounds=(4,), sync=1e9, worth=0))
    stacked = [s for s in plan_of(spec, (1, 16, 64, 20), tuning=bands).steps if s.bands]
    assert [(len(s.bands), "a" in s.layers, "joined" in s.layers) for s in stacked] == [(8, True, True)]
    lines = [sum(_lines(stacked[0].plans[band.plan], name) for band in stacked[0].bands) for name in "ab"]
    assert 64 < lines[0] <= 64 + 8 * (5 + 1)
    assert 64 < lines[1] <= 64 + 8 * (5 - 1)
    data = noise(1, 16, 64, 20)
    want = [y.tobytes() for y in _outputs(bslite.run(spec, data, layerwise=True))]
    for threads in (1, 2):
        assert [y.tobytes() for y in run_tuned(spec, [data], threads, bands)] == want
    copied = [s for p in stacked[0].plans for s in p.steps if s.kernel == "copy" and "joined" in s.layers]
    assert not copied


def _lines(plan: Plan, layer: str) -> int:
    """The lines that the steps of a layer make."""
    return sum(
        s.record.lines for s in plan.steps if s.layers[:1] == (layer,) and s.kernel in ("conv", "depthwise")
    )


def _outputs(found: Any) -> list[Array]:
    return list(found) if isinstance(found, (list, tuple)) else [found]


def test_twenty_runs_give_one_answer() -> None:
    """With the prices as they are: bands, shares and stolen items differ from run to run, the bits do not."""
    spec = network("mobilenet_v2")
    for batch in (1, 5):
        x = images(batch, 160, 160)
        found = {bslite.run(spec, x, threads=threads).tobytes() for threads in (2, 1) for _ in range(20)}
        assert found == {bslite.run(spec, x, layerwise=True).tobytes()}


def test_nan_and_infinities_come_through() -> None:
    spec = network("squeezenet1_1")
    x = images(1, 64, 64)
    x[0, 0, 3, 5], x[0, 1, 40, 40] = np.nan, np.inf
    want = bslite.run(spec, x, layerwise=True)
    assert np.isnan(want).any()
    np.testing.assert_array_equal(run_tuned(spec, [x], 2, EAGER)[0], want)


def check(spec: ModelSpec, *inputs: Array) -> None:
    """Same bits layer by layer and not, and near the reference."""
    want = bslite.run(spec, list(inputs), layerwise=True)
    wants = want if isinstance(want, (list, tuple)) else [want]
    for threads in (1, 2):
        for tuning in (Tuning(), EAGER):
            gots = run_tuned(spec, list(inputs), threads, tuning)
            assert [y.tobytes() for y in gots] == [y.tobytes() for y in wants]
    for y, exact in zip(wants, reference.run(spec, list(inputs), np.float64), strict=True):
        np.testing.assert_allclose(y, exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("pad", {"pads": (0, 0, 0, 0, 0, 0, 1, 1)}),
        ("pad", {"pads": (0, 0, 2, 1, 0, 0, 0, 0)}),
        ("pad", {"pads": (0, 0, 0, 1, 0, 0, 0, 1), "value": 2.0}),
        ("slice", {"axis": 2, "start": 0, "stop": -1}),
        ("slice", {"axis": 2, "start": 3, "stop": 30}),
        ("slice", {"axis": 3, "start": 0, "stop": -1}),
    ],
    ids=str,
)
def test_ops_that_give_more_or_fewer_rows(op: str, attrs: dict[str, Any]) -> None:
    g = Graph()
    x = g("relu", "a", g.input("x", (1, 4, 33, 12)))
    x = g(op, "moved", x, **attrs)
    x = g("conv2d", "conv", x, weight=noise(4, 4, 3, 3), padding=1)
    spec = g.build(g("sigmoid", "b", g("max_pool2d", "pool", x, kernel=3, stride=2)))
    check(spec, noise(1, 4, 33, 12))


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("shape", [(1, 4, 33, 12), (1, 4, 33, 1), (1, 1, 1, 12), (4, 33, 12)], ids=str)
def test_constants_as_tall_as_the_image(shape: tuple[int, ...], batch: int) -> None:
    g = Graph()
    w, c = noise(4, 4, 3, 3), g("constant", "c", value=noise(*shape))
    a = g("conv2d", "a", g.input("x", ("N", 4, 33, 12), (1, 4, 33, 12)), weight=w, padding=1)
    d = g("conv2d", "d", g("mul", "b", a, c), weight=w, padding=1)
    e = g("add", "e", g("relu", "r", d), c)
    check(g.build(e, g("softmax", "s", g("add", "f", c, e), axis=2)), noise(batch, 4, 33, 12))


def test_images_that_are_no_longer_the_batch() -> None:
    g = Graph()
    x = g("relu", "a", g.input("x", (1, 8, 24, 12)))
    x = g("reshape", "two", x, shape=(2, 4, 24, 12))
    x = g("conv2d", "conv", x, weight=noise(4, 4, 3, 3), padding=1)
    x = g("max_pool2d", "pool", g("sigmoid", "b", x), kernel=3, stride=1, padding=1)
    check(g.build(x), noise(1, 8, 24, 12))


def test_inputs_of_different_batches() -> None:
    g = Graph()
    y, x = g.input("y", ("A", 3), (1, 3)), g.input("x", ("B", 4, 16, 8), (4, 4, 16, 8))
    for i in range(3):
        x = g("max_pool2d", f"p{i}", x, kernel=3, stride=1, padding=1)
    check(g.build(x, g("relu", "r", y)), noise(1, 3), noise(4, 4, 16, 8))


def test_a_stack_waits_for_the_zeros_it_reads() -> None:
    """A value that leaves a stack and is read inside it, with zeros that a step outside fills."""
    g = Graph()
    a = g("conv2d", "a", g.input("x", ("N", 16, 40, 40)), weight=noise(16, 16, 1, 1))
    spec = g.build(a, g("conv2d", "b", a, weight=noise(16, 16, 3, 3), padding=1))
    plan = build_plan(simplify(spec), [(4, 16, 40, 40)], Machine(threads=2))
    halos = [i for i, s in enumerate(plan.steps) if s.kernel == "halo" and "a" in s.layers]
    stacks = [s for s in plan.steps if s.inner]
    assert stacks
    assert halos
    assert all(s.after > max(halos) for s in stacks)
    check(spec, noise(4, 16, 40, 40))


def test_a_residual_that_is_the_convolutions_own_input() -> None:
    g = Graph()
    x = g("relu", "a", g.input("x", (1, 4, 8, 8)))
    c = g("conv2d", "c", x, weight=noise(4, 4, 3, 3), stride=2, padding=(5, 5, 4, 4))
    check(g.build(g("tanh", "t", g("add", "s", c, x))), noise(1, 4, 8, 8))


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
    g = Graph()
    x = g("relu", "a", g.input("x", (1, 3, 64, 64)))
    spec = g.build(g("sigmoid", "b", g("adaptive_avg_pool2d", "pool", x, output_size=(4, 4))))
    shapes = spec.infer_shapes([(1, 3, 64, 64)])
    able = {layer.name: banding.can_band(layer, spec, shapes, ()) for layer in fuse(spec)}
    assert able == {"a": True, "b": False}  # the sigmoid is in the pool's store


def test_faster_arithmetic_makes_more_runs() -> None:
    """On a unit for tiles the time is in moving values, weights among them: those of six products have more
    bytes than float32's. "ieee" plans as for a machine without one.
    """
    spec = simplify(network("resnet50"))
    known = Machine(threads=2, l2=2 << 20)
    unit = dataclasses.replace(known, tile_cycles=16.0)

    def plan(machine: Machine, precision: str) -> Any:
        return build_plan(
            spec, [(1, 3, 224, 224)], machine, tuning=Tuning(precision=bslite.Precision(precision))
        )

    def banded(plan: Any) -> int:
        return sum(len(step.layers) for step in plan.steps if step.bands)

    plain = plan(known, "float32")
    assert [step.record for step in plan(unit, "ieee").steps] == [step.record for step in plain.steps]
    six, three, one = (banded(plan(unit, word)) for word in ("float32", "bfloat16_3x", "bfloat16"))
    assert 0 < banded(plain) <= six < three < one
