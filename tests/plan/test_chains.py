"""Chains of elementwise layers: one step for all of them, and the bits of one layer after the other."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.graphs import Graph
from support.noise import noise
from support.plans import plan_of, run_tuned

import bslite
from bslite import ModelSpec, ops
from bslite.engines.cpu.detect import detect
from bslite.errors import InputError
from bslite.ops.reduce import REDUCED, Reduction
from bslite.passes import simplify
from bslite.plan import build_plan
from bslite.plan.cpu.step import CpuPlan
from bslite.plan.cpu.tuning import Tuning


def chains(plan: CpuPlan) -> list[tuple[str, ...]]:
    """The nodes of each chain of a plan, those within its stacks included."""
    found = []
    for step in plan.steps:
        found += [step.layers] if step.tiled else chains(step.inner) if step.inner else []
    return found


def written_out() -> ModelSpec:
    """GELU's approximation as exporters write it, with a mask: all kinds of ops, several readers."""
    g = Graph()
    x, mask = g.input("x", ("N", 5, "C"), (2, 5, 8)), g.input("mask", ("N", 5, 1), (2, 5, 1))
    scale, half = (
        g("constant", "scale", value=noise(1)),
        g("constant", "half", value=np.full(1, 0.5, np.float32)),
    )
    cube = g("mul", "cube", g("mul", "square", x, x), x)
    tanh = g("tanh", "tanh", g("add", "sum", x, g("mul", "scaled", cube, scale)))
    halves = g("mul", "halves", x, half)
    gelu = g("add", "gelu", g("mul", "product", halves, tanh), halves)
    kept = g("where", "kept", g("less", "less", mask, gelu), gelu, g("clamp", "clamp", x, low=-1.0, high=1.0))
    return g.build(g("cast", "cast", g("greater", "greater", kept, x), to="float32"), kept)


def same_bits(spec: ModelSpec, inputs: list[Any]) -> None:
    """The model gives the bits of one layer after the other, with any number of threads."""
    want = bslite.run(spec, inputs, layerwise=True)
    for threads in (1, 2):
        got = bslite.run(spec, inputs, threads=threads)
        for mine, theirs in zip(*(r if isinstance(r, list) else [r] for r in (got, want)), strict=True):
            assert mine.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("channels", [1, 8, 33, 1000, 4099])
def test_a_graph_of_elementwise_layers_is_one_step(channels: int) -> None:
    spec = written_out()
    shapes = [(2, 5, channels), (2, 5, 1)]
    plan = build_plan(simplify(spec), shapes, detect(2))
    (nodes,) = chains(plan)
    assert len(nodes) == sum(node.op != "constant" for node in spec.nodes)
    assert not chains(build_plan(simplify(spec), shapes, detect(2), tuning=Tuning(chains=False)))
    assert not chains(build_plan(simplify(spec), shapes, detect(2), keep_values=True))
    same_bits(spec, [noise(*shape, seed=i) for i, shape in enumerate(shapes)])


def test_a_path_that_leaves_and_comes_back_cuts_a_chain() -> None:
    g = Graph()
    x = g.input("x", ("N", 24), (3, 24))
    first = g("exp", "first", x)
    scaled = g("mul", "scaled", first, x)
    soft = g("softmax", "soft", scaled, axis=0)  # reads the chain, and is read after it
    other = g("sub", "other", first, scaled)
    last = g("add", "last", soft, other)
    spec = g.build(g("relu", "end", g("mul", "again", last, first)))
    assert chains(plan_of(spec, 3)) == [("first", "scaled", "other"), ("last", "again", "end")]
    same_bits(spec, [noise(3, 24)])


def test_two_branches_that_meet_are_one_chain() -> None:
    g = Graph()
    x = g.input("x", ("N", 16), (5, 16))
    left = g("tanh", "left", g("softmax", "a", x, axis=0))
    right = g("sigmoid", "right", g("log_softmax", "b", x, axis=0))
    spec = g.build(g("mul", "gate", left, right))
    assert chains(plan_of(spec, 5)) == [("left", "right", "gate")]
    same_bits(spec, [noise(5, 16)])


def test_norms_and_softmax_along_rows_are_part_of_a_chain() -> None:
    g = Graph()
    x = g.input("x", ("N", "T", 40), (2, 7, 40))
    weight, eps = g("constant", "weight", value=noise(40)), g("constant", "eps", value=noise(1) ** 2)
    centred = g("sub", "centred", x, g("mean", "mean", x, axes=(-1,), keepdim=True))
    variance = g("mean", "variance", g("mul", "squared", centred, centred), axes=(-1,), keepdim=True)
    root = g("sqrt", "root", g("add", "shifted", variance, eps))
    normed = g("mul", "scaled", g("div", "normed", centred, root), weight)
    soft = g("softmax", "soft", g("add", "residual", normed, x), axis=-1)
    again = g("layer_norm", "again", soft, normalized_shape=(40,), weight=noise(40), bias=noise(40, seed=1))
    spec = g.build(again, variance)
    for shape in ((2, 7, 40), (1, 1, 40), (3, 301, 40)):
        assert len(chains(plan_of(spec, shape))) == 1
        same_bits(spec, [noise(*shape)])


def test_rows_of_an_image_side_by_side_are_no_part_of_a_chain() -> None:
    """A softmax along lines of an image with channels last takes its lanes, not rows."""
    g = Graph()
    x = g.input("x", ("N", 24, 7, 5), (1, 24, 7, 5))
    summed = g("add", "summed", x, g("softmax", "soft", x, axis=3))
    doubled = g("mul", "doubled", summed, g("constant", "two", value=np.full((), 2, np.float32)))
    joined = g("concat", "joined", summed, doubled, axis=2)
    spec = g.build(g("conv2d", "conv", joined, weight=noise(4, 24, 3, 3), padding=1))
    assert chains(plan_of(spec, 1)) == [("summed", "doubled")]
    same_bits(spec, [noise(1, 24, 7, 5)])


def test_a_masked_softmax_of_images_is_one_step() -> None:
    g = Graph()
    x, mask = g.input("x", ("N", 3, 9, 33), (2, 3, 9, 33)), g.input("mask", ("N", 1, 1, 33), (2, 1, 1, 33))
    scaled = g("mul", "scaled", x, g("constant", "scale", value=noise(1)))
    spec = g.build(g("softmax", "soft", g("add", "masked", scaled, mask), axis=-1))
    assert len(chains(build_plan(simplify(spec), [(2, 3, 9, 33), (2, 1, 1, 33)], detect(2)))) == 1
    same_bits(spec, [noise(2, 3, 9, 33), noise(2, 1, 1, 33)])


def test_an_error_inside_a_chain_names_its_layer() -> None:
    g = Graph()
    x = g.input("x", ("N", 4), (3, 4))
    whole = g("cast", "whole", g("mul", "double", x, x), to="int64")
    spec = g.build(g("add", "sum", whole, whole))
    assert len(chains(plan_of(spec, 3))) == 1
    values = noise(3, 4)
    np.testing.assert_array_equal(bslite.run(spec, values), 2 * np.trunc(values * values).astype(np.int64))
    values[1, 2] = np.nan
    with pytest.raises(InputError, match="'whole'"):
        bslite.run(spec, values)
    np.testing.assert_array_equal(bslite.run(spec, np.full((3, 4), 2, np.float32)), np.full((3, 4), 8))


def test_layouts_that_differ_go_through_a_chain() -> None:
    g = Graph()
    x, y = g.input("x", ("N", 6, "H", "W"), (2, 6, 5, 7)), g.input("y", ("N", "H", "W", 6), (2, 5, 7, 6))
    turned = g("permute", "turned", y, order=(0, 3, 1, 2))
    summed = g("add", "summed", g("exp", "exp", x), turned)
    scaled = g("mul", "scaled", summed, g("constant", "scale", value=noise(6, 1, 1)))
    spec = g.build(scaled, g("sub", "rows", scaled, g("constant", "row", value=noise(5, 1))))
    assert len(chains(build_plan(simplify(spec), [(2, 6, 5, 7), (2, 5, 7, 6)], detect(2)))) == 1
    same_bits(spec, [noise(2, 6, 5, 7), noise(2, 5, 7, 6)])


@st.composite
def graphs(draw: st.DrawFn) -> tuple[ModelSpec, list[Any]]:
    """Elementwise layers that read earlier values at random, and a softmax among them now and then."""
    rank = draw(st.integers(1, 4))
    whole = tuple(draw(st.sampled_from((1, 2, 3, 17, 130))) for _ in range(rank))
    g, arrays = Graph(), []
    for i in range(draw(st.integers(1, 4))):
        kept = [draw(st.booleans()) for _ in whole] if i else [True] * rank
        shape = tuple(n if keep else 1 for n, keep in zip(whole, kept, strict=True))
        g.input(f"x{i}", shape, shape)
        arrays.append(noise(*shape, seed=i))
    names = [i.name for i in g.inputs]
    for i in range(draw(st.integers(2, 14))):
        op = draw(
            st.sampled_from(("add", "mul", "maximum", "tanh", "relu", "where", "softmax", "sum", "amax"))
        )
        ins = [draw(st.sampled_from(names)) for _ in range({"add": 2, "mul": 2, "maximum": 2}.get(op, 1))]
        if op == "where":
            ins = [g("less", f"less{i}", ins[0], names[-1]), names[-1], names[0]]
        over = {"axes": (-1,), "keepdim": True} if op in ("sum", "amax") else {}
        names.append(g(op, f"n{i}", *ins, **({"axis": -1} if op == "softmax" else over)))
    return g.build(*dict.fromkeys((names[-1], draw(st.sampled_from(names[len(arrays) :]))))), arrays


@settings(max_examples=15, deadline=None)
@given(graphs())
def test_any_graph_gives_the_bits_of_one_layer_after_the_other(drawn: tuple[ModelSpec, list[Any]]) -> None:
    same_bits(*drawn)


@pytest.mark.parametrize("elements", [5000, 4096 * 6, 100_003])
def test_tiles_cover_a_long_vector(elements: int) -> None:
    g = Graph()
    x = g.input("x", ("N",), (64,))
    spec = g.build(g("add", "sum", g("exp", "exp", x), x))
    values = noise(elements)
    (step,) = [s for s in plan_of(spec, (elements,)).steps if s.tiled]
    assert step.items > 1
    (plain,) = run_tuned(spec, [values], 2, Tuning(chains=False))
    (tiled,) = run_tuned(spec, [values], 2, Tuning())
    assert tiled.tobytes() == plain.tobytes()


@pytest.mark.parametrize("op", [op for op in REDUCED if isinstance(ops.get(op), Reduction)])
@pytest.mark.parametrize("last", [1, 2, 3, 4, 5, 17])
def test_a_short_row_is_reduced_in_one_way(op: str, last: int) -> None:
    """In a chain, behind a reshape that gives the axis back, or alone: a few elements are no row."""
    for shape in ((7, last), (3, 5, last), (2, 5, 4, last), (2, 3, 4, 5, last)):
        for keepdim in (True, False):
            g = Graph()
            value = g("exp", "e", g("layer_norm", "n", g.input("x", shape), normalized_shape=(last,)))
            found = g(op, "found", value, axes=(-1,), keepdim=keepdim)
            found = found if keepdim else g("reshape", "kept", found, shape=(*shape[:-1], 1))
            spec, x = g.build(g("mul", "out", value, found)), noise(*shape)
            want = bslite.run(spec, x, layerwise=True).tobytes()
            assert {bslite.run(spec, x, threads=threads).tobytes() for threads in (1, 2)} == {want}
