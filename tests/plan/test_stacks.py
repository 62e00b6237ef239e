"""Depth-first over images: the same bits as layer by layer in a fraction of the memory, and when not to."""

from typing import Any

import numpy as np
import pytest
from support.check import all_cases, runs, unlike
from support.graphs import Graph, network
from support.networks import networks
from support.noise import images
from support.plans import open_in_the_middle, plan_of
from support.rewriting import Net, array, check, repeated

import bslite
from bslite import ops, reference
from bslite.engines.cpu.detect import detect
from bslite.kernels.contracts.cpu.stack import Stacked
from bslite.machine import Machine
from bslite.ops import Case, Op
from bslite.passes import simplify
from bslite.plan import Plan, build_plan


def memory(plan: Plan) -> int:
    """Elements of activation memory, every thread's scratch counted."""
    return plan.arena_size + plan.threads * plan.scratch_size


NETWORKS = ("resnet18", "densenet121", "mobilenet_v2", "squeezenet1_1", "googlenet", "alexnet")


@pytest.mark.parametrize("arch", networks(NETWORKS))
def test_same_bits_as_layer_by_layer(arch: str) -> None:
    models = {size: network(arch, size=size) for size in (96, 128)}  # the machine says which has stacks
    size = next(n for n, spec in models.items() if any(step.inner for step in plan_of(spec, 4).steps))
    spec = models[size]
    for batch in (2, 4, 5):
        x = images(batch, size, size)
        want = bslite.run(spec, x, layerwise=True).tobytes()
        for _ in range(3):
            assert bslite.run(spec, x, threads=2).tobytes() == want
        assert bslite.run(spec, x, threads=1).tobytes() == want


@pytest.mark.parametrize("arch", ["densenet201", "mobilenet_v2"])
def test_at_most_half_the_memory_at_batch_16(arch: str) -> None:
    spec = network(arch)
    assert memory(plan_of(spec, 16)) <= 0.5 * memory(plan_of(spec, 16, layerwise=True))


def own_inputs(op: Op, inputs: int) -> list[int]:
    """The inputs that not all images share."""
    return [i for i in range(inputs) if i not in op.share(inputs)]


def apart() -> list[Any]:
    """Cases of one batch, whose images the op says that it keeps apart."""
    found = []
    for param in all_cases(least_inputs=1):
        op, case = param.values
        attrs = ops.parse_attrs(op, case.attrs)
        own = [case.inputs[i] for i in own_inputs(op, len(case.inputs))]
        shapes = [*own, ops.infer(op, case.inputs, case.params, attrs)]
        batch = {shape[0] if shape else 0 for shape in shapes}
        ranks = [len(shape) for shape in own]
        if len(batch) != 1 or batch == {0} or op.sums_images:
            continue
        if op.keeps_images_apart(ranks, attrs):
            found.append(param)
    return found


@pytest.mark.parametrize(("op", "case"), apart())
def test_an_op_that_keeps_images_apart_does(op: Op, case: Case) -> None:
    inputs, function, integers = runs(op, case)
    want = function(*inputs)
    others = [x.copy() for x in inputs]
    for x in (others[i] for i in own_inputs(op, len(others))):
        x[1:] = unlike(x[1:], integers)
    np.testing.assert_array_equal(function(*others)[:1], want[:1])


def test_ops_across_the_batch_are_not_stacked() -> None:
    g = Graph()
    x = g("relu", "a", g.input("x", ("N", 3, 8, 8)))
    spec = g.build(g("relu", "b", g("softmax", "across", x, axis=0)))
    inside = {name for step in plan_of(spec, 4).steps if step.inner for name in step.layers}
    assert "across" not in inside
    y = images(4, 8, 8)
    np.testing.assert_allclose(
        bslite.run(spec, y, threads=2), bslite.run(spec, y, backend="reference"), rtol=1e-5
    )


def test_values_that_leave_a_stack_and_constants_that_enter() -> None:
    spec, data = open_in_the_middle(), images(4, 20, 20)
    want = bslite.run(spec, data, layerwise=True)
    got = bslite.run(spec, data, threads=2)
    assert [y.tobytes() for y in got] == [y.tobytes() for y in want]
    for y, exact in zip(got, reference.run(spec, [data], np.float64), strict=True):
        np.testing.assert_allclose(y, exact, rtol=1e-4, atol=1e-4)


def test_an_image_for_each_thread_does_not_read_all_weights_twice() -> None:
    """Layers that are hardly more than their weights go one by one; of more rows, image by image."""
    for rows, stacked in ((1, False), (512, True)):
        g = Graph()
        x = g.input("x", ("N", rows, 512), (2, rows, 512))
        for i in range(6):
            x = g("relu", f"relu{i}", g("linear", f"linear{i}", x, weight=np.ones((512, 512), np.float32)))
        machine = Machine(threads=2)
        plan = build_plan(simplify(g.build(x)), [(2, rows, 512)], machine)
        assert any(step.kernel == "stack" for step in plan.steps) == stacked


@pytest.mark.parametrize(("features", "stacked"), [(8, False), (4096, True)])
def test_rows_of_a_few_numbers_are_not_taken_one_by_one(features: int, stacked: bool) -> None:
    """Where a layer takes less time for a row than to begin with it; views take none either way."""
    g = Graph()
    x = g.input("x", ("N", 2, features), (256, 2, features))
    for i in range(6):
        y = g("slice", f"slice{i}", x, axis=1, start=1, stop=2)
        x = g("mul", f"mul{i}", g("tanh", f"tanh{i}", x), y)
    plan = build_plan(simplify(g.build(x)), [(256, 2, features)], Machine(threads=2))
    assert any(step.kernel == "stack" and step.items == 256 for step in plan.steps) == stacked


def test_a_constant_repeated_for_each_image_is_one_of_an_image_inside() -> None:
    """It is taken through views (queries of a decoder, here as no rule has computed them ahead)."""
    net = Net()
    x = net.input("x", ("N", 500, 48), (2, 500, 48))
    y = net("permute", repeated(net, array(1, 4, 500, 12), x), order=[0, 2, 1, 3])
    y = net("flatten", y, start_axis=2)
    for _ in range(2):
        y = net("layer_norm", net("add", net("linear", y, weight=array(48, 48)), x), normalized_shape=(48,))
    (step,) = build_plan(net.build(y), [(16, 500, 48)], detect(2)).steps
    assert isinstance(step.record, Stacked)


def test_what_becomes_constant_late_is_computed_on_from_there() -> None:
    """Self-attention of the queries: recognised after the layers that read it."""
    net = Net()
    x = net.input("x", ("N", 5, 8), (2, 5, 8))
    heads = net("reshape", repeated(net, array(1, 5, 8), x), shape=(0, 5, 2, 4))
    row = net("reshape", net("permute", heads, order=(0, 2, 1, 3)), shape=(-1, 5, 4))
    scores = net("matmul", row, net("permute", row, order=(0, 2, 1)))
    y = net("matmul", net("softmax", scores, axis=-1), row)
    y = net("permute", net("reshape", y, shape=(-1, 2, 5, 4)), order=[0, 2, 1, 3])
    y = net("flatten", y, start_axis=2)
    check(net.build(net("add", net("linear", y, weight=array(8, 8)), x)), "repeat_batch", "add")
