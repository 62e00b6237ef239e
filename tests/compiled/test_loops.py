"""ONNX's loops over sequences of any length: no plan for each length, several steps in a call."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from support.noise import noise
from support.onnx_models import BOOL, INT64, helper, model, value

import bslite
from bslite.frontends.onnx.control import passes
from bslite.onnx import chunks, control, running
from bslite.onnx.running import Running
from bslite.spec import Array

node = helper.make_node
WIDTH = 6
STORED = {
    "w": noise(WIDTH, WIDTH), "u": noise(WIDTH, WIDTH), "zero": np.int64(0), "axis": np.array([0]),
    "yes": np.array(True), "h0": np.zeros((1, WIDTH), np.float32),
}  # fmt: skip


def step_of(row: str) -> list[Any]:
    """``h = tanh(row @ w + h @ u)``."""
    return [
        node("MatMul", [row, "w"], ["a"], name="enter"),
        node("MatMul", ["h", "u"], ["b"], name="again"),
        node("Add", ["a", "b"], ["s"]),
        node("Tanh", ["s"], ["next"]),
    ]


def by_loop(condition: str = "yes", **changed: Any) -> Any:
    """Over the rows of x [T, WIDTH], as many as there are."""
    inside = [
        node("Gather", ["x", "i"], ["xi"], axis=0),
        node("Unsqueeze", ["xi", "axis"], ["row"]),
        *step_of("row"),
        node("Cast", ["i"], ["f"], to=1),
        node("Add", ["next", "f"], ["shown"]),
        node("Identity", ["going"], ["still"]),
    ]
    body = helper.make_graph(
        inside, "body", [value("i", [], INT64), value("going", [], BOOL), value("h", None)],
        [value("still", [], BOOL), value("next", None), value("shown", None)],
    )  # fmt: skip
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["n"], axis=0),
        node("Loop", ["n", condition, "h0"], ["last", "all"], body=body, name="loop"),
    ]
    return model(nodes, [value("x", ["T", WIDTH])], ["last", "all"], {**STORED, **changed})


def want_of_loop(x: Array) -> list[Array]:
    h, rows = STORED["h0"], []
    for i, row in enumerate(x):
        h = np.tanh(row[None] @ STORED["w"] + h @ STORED["u"])
        rows.append(h + i)
    return [h, np.stack(rows)]


def by_scan(backwards: bool) -> Any:
    body = helper.make_graph(
        [node("Unsqueeze", ["xi", "axis"], ["row"]), *step_of("row"), node("Neg", ["next"], ["shown"])],
        "body", [value("h", None), value("xi", None)], [value("next", None), value("shown", None)],
    )  # fmt: skip
    ways = {"scan_input_directions": [1], "scan_output_directions": [1]} if backwards else {}
    scan = node("Scan", ["h0", "x"], ["last", "all"], body=body, num_scan_inputs=1, name="scan", **ways)
    return model([scan], [value("x", ["T", WIDTH])], ["last", "all"], STORED)


def want_of_scan(x: Array, backwards: bool) -> list[Array]:
    h, rows = STORED["h0"], []
    for row in x[::-1] if backwards else x:
        h = np.tanh(row[None] @ STORED["w"] + h @ STORED["u"])
        rows.append(-h)
    return [h, np.stack(rows[::-1] if backwards else rows)]


def check(made: Any, want: Sequence[Array]) -> None:
    for own, theirs in zip(made.values(), want, strict=True):
        np.testing.assert_allclose(own, theirs, rtol=1e-4, atol=1e-5)


def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the graphs that run from now on, in order."""
    ran: list[str] = []
    run = Running.run
    monkeypatch.setattr(
        Running, "run", lambda self, given: (ran.append(self.graph.proto.name), run(self, given))[1]
    )
    return ran


@pytest.mark.parametrize("condition", ["", "yes"])
def test_several_steps_of_a_loop_are_one_call(condition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "MOST_WRITTEN", 0)
    compiled = bslite.compile(by_loop(condition))
    for length in (3, 4):
        x = noise(length, WIDTH)
        check(compiled(x), want_of_loop(x))
    assert any("its number of steps keeps changing" in line for line in compiled.pieces)
    x, ran = noise(41, WIDTH), calls(monkeypatch)
    for _ in range(2):
        ran.clear()
        check(compiled(x), want_of_loop(x))
    ran = [name for name in ran if name.startswith("body")]
    # two steps to see that the states stay alike, two calls of 16, the rest
    assert [name == "body 16 times" for name in ran] == [False] * 2 + [True] * 2 + [False] * 7
    x = noise(3, WIDTH)
    check(compiled(x), want_of_loop(x))  # one that was written out before


@pytest.mark.parametrize("backwards", [False, True])
def test_several_steps_of_a_scan_are_one_call(backwards: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "MOST_WRITTEN", 0)
    compiled = bslite.compile(by_scan(backwards))
    ran = calls(monkeypatch)
    for length in (3, 4, 40, 55, 70):
        x = noise(length, WIDTH)
        ran.clear()
        check(compiled(x), want_of_scan(x, backwards))
    assert sum(name == "body in slices" for name in ran) == 4


def test_a_loop_that_may_end_early_goes_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of steps is a bound; the condition is computed."""
    proto = by_loop()
    body = next(a for a in proto.graph.node[2].attribute if a.name == "body").g
    body.node.remove(body.node[-1])
    body.node.extend(
        [node("ReduceMax", ["next"], ["most"], keepdims=0), node("Less", ["most", "end"], ["still"])]
    )
    assert not passes(body)
    proto.graph.initializer.append(helper.make_tensor("end", 1, [], [0.5]))
    compiled, x = bslite.compile(proto), noise(300, WIDTH)
    ran = calls(monkeypatch)
    h, steps = STORED["h0"], 0
    for row in x:
        h = np.tanh(row[None] @ STORED["w"] + h @ STORED["u"])
        steps += 1
        if h.max() >= 0.5:
            break
    assert 0 < steps < len(x)
    for _ in range(2):
        last, every = compiled(x).values()
        np.testing.assert_allclose(last, h, rtol=1e-4, atol=1e-5)
        assert len(every) == steps
    assert "body 16 times" not in ran


def test_what_grows_in_a_loop_goes_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    body = helper.make_graph(
        [node("Concat", ["list", "one"], ["longer"], axis=0), node("Identity", ["going"], ["still"])], "body",
        [value("i", [], INT64), value("going", [], BOOL), value("list", None)],
        [value("still", [], BOOL), value("longer", None)],
    )  # fmt: skip
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["n"], axis=0),
        node("Loop", ["n", "", "x"], ["y"], body=body),
    ]
    proto = model(nodes, [value("x", ["T", 2])], ["y"], {"one": np.ones((1, 2), "f4"), "zero": np.int64(0)})
    monkeypatch.setattr(running, "MOST_WRITTEN", 0)
    compiled, ran = bslite.compile(proto), calls(monkeypatch)
    for length in (2, 3, 40, 40):
        x = noise(length, 2)
        (made,) = compiled(x).values()
        np.testing.assert_array_equal(made, np.concatenate([x, np.ones((length, 2), "f4")]))
    assert "body 16 times" not in ran


def test_a_long_loop_takes_several_steps_at_once_from_its_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "LONG", 300)
    compiled, x = bslite.compile(by_loop()), noise(310, WIDTH)
    ran = calls(monkeypatch)
    check(compiled(x), want_of_loop(x))
    assert sum(name == "body 16 times" for name in ran) == 19  # but 2 steps before them and 4 after


def test_bodies_of_many_nodes_are_taken_one_by_one() -> None:
    assert [chunks.steps_at_once(n) for n in (0, 8, 40, 200)] == [16, 16, 12, 0]


def test_scan_of_opset_8_goes_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sequences are a batch. What is written out of each counts by itself."""
    body = helper.make_graph(
        [node("Add", ["s", "xi"], ["next"]), node("Neg", ["next"], ["shown"])],
        "body", [value("s", [2]), value("xi", [2])], [value("next", [2]), value("shown", [2])],
    )  # fmt: skip
    scan = node("Scan", ["", "s0", "x"], ["last", "all"], body=body, num_scan_inputs=1, name="scan")
    proto = model([scan], [value("s0", ["N", 2]), value("x", ["N", "T", 2])], ["last", "all"], {}, opset=8)
    compiled = bslite.compile(proto)
    start, x = noise(3, 2), noise(3, 20, 2)
    compiled({"s0": start, "x": x})
    assert [line.split(":")[0] for line in compiled.pieces] == ["engine"]
    monkeypatch.setattr(running, "MOST_WRITTEN", 0)
    compiled = bslite.compile(proto)
    for length in (3, 4, 40, 40, 60):
        start, x = noise(3, 2), noise(3, length, 2)
        sums = start[:, None] + x.cumsum(1)
        check(compiled({"s0": start, "x": x}), [sums[:, -1], -sums])


def test_names_of_a_body_may_begin_like_those_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "MOST_WRITTEN", 0)
    proto = by_loop(**{"steps/steps": np.float32(2)})
    body = next(a for a in proto.graph.node[2].attribute if a.name == "body").g
    body.node.append(node("Mul", ["shown", "steps/steps"], ["twice"]))
    body.output[2].name = "twice"
    compiled = bslite.compile(proto)
    for length in (3, 4, 40, 40):
        x = noise(length, WIDTH)
        last, every = want_of_loop(x)
        check(compiled(x), [last, 2 * every])


def test_a_loop_of_always_as_many_steps_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though other sizes make models of many operations together."""
    monkeypatch.setattr(running, "MOST_WRITTEN", 0)
    proto = by_loop(n=np.int64(2))
    del proto.graph.node[:2]
    compiled = bslite.compile(proto)
    for length in (2, 3, 5):
        x = noise(length, WIDTH)
        check(compiled(x), want_of_loop(x[:2]))
    assert len(compiled.pieces) == 1


@pytest.mark.parametrize(("rows", "written"), [(6, True), (100, False)])
def test_few_steps_of_many_nodes_are_written_out_where_other_lengths_may_come(
    rows: int, written: bool
) -> None:
    compiled, x = bslite.compile(by_loop()), noise(rows, WIDTH)
    check(compiled(x), want_of_loop(x))
    assert any("are written out" in line for line in compiled.pieces) is not written
    fixed = by_loop()
    fixed.graph.input[0].type.tensor_type.shape.dim[0].dim_value = rows
    compiled = bslite.compile(fixed)
    check(compiled(x), want_of_loop(x))
    assert len(compiled.pieces) == 1


def test_a_loop_that_a_computed_condition_ends_is_limited_too() -> None:
    """As exporters of TensorFlow write theirs: no number of steps, but a comparison with it."""
    proto = by_loop(one=np.int64(1), most=np.int64(2**31 - 1))
    loop = proto.graph.node[2]
    body = next(a for a in loop.attribute if a.name == "body").g
    body.node.remove(body.node[-1])
    body.node.extend([node("Add", ["i", "one"], ["next i"]), node("Less", ["next i", "n"], ["still"])])
    loop.input[0] = "most"
    compiled = bslite.compile(proto)
    for rows, written in ((6, True), (100, False)):
        x = noise(rows, WIDTH)
        check(compiled(x), want_of_loop(x))
        assert any("are written out" in line for line in compiled.pieces) is not written


@pytest.mark.parametrize("shape", [[], [1]])
def test_a_number_as_an_input_leaves_sizes_fixed(shape: list[int]) -> None:
    proto = by_loop()
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 100
    proto.graph.input.append(value("more", shape))
    proto.graph.node.append(node("Add", ["last", "more"], ["sum"]))
    proto.graph.output[0].name = "sum"
    compiled, x = bslite.compile(proto), noise(100, WIDTH)
    last, every = want_of_loop(x)
    check(compiled({"x": x, "more": np.ones(shape, np.float32)}), [last + 1, every])
    assert len(compiled.pieces) == 1


LENGTHS = {"whole": [5, 5, 5], "some": [3, 0, 5], "one": [1, 1, 1]}


@pytest.mark.parametrize("axes", [(0, 1), (1, 0)])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_reversed_sequences(axes: tuple[int, int], lengths: list[int], dtype: type) -> None:
    reverse = node("ReverseSequence", ["x", "n"], ["y"], batch_axis=axes[0], time_axis=axes[1])
    kind = INT64 if dtype is np.int64 else 1
    shape: list[Any] = [3, 5, 2] if axes == (0, 1) else [5, 3, 2]
    proto = model([reverse], [value("x", shape, kind)], ["y"], {"n": np.array(lengths)})
    x = (noise(*shape) * 9).astype(dtype)
    want = np.moveaxis(x.copy(), axes, (0, 1))
    for row, count in zip(want, lengths, strict=True):
        row[:count] = row[:count][::-1].copy()
    compiled = bslite.compile(proto)
    (made,) = compiled(x).values()
    np.testing.assert_array_equal(made, np.moveaxis(want, (0, 1), axes))
    assert len(compiled.pieces) == 1
    assert compiled.pieces[0].startswith("engine")


def test_whole_sequences_of_any_length_are_reversed_by_one_model() -> None:
    nodes = [
        node("Shape", ["x"], ["n"], start=0, end=1),
        node("ReverseSequence", ["x", "n"], ["y"], batch_axis=1, time_axis=0),
    ]
    proto = model(nodes, [value("x", ["T", 1, 2])], ["y"])
    spec = bslite.from_onnx(proto)
    for length in (3, 7):
        x = noise(length, 1, 2)
        np.testing.assert_array_equal(bslite.run(spec, x), x[::-1])


def test_lengths_that_do_not_fit_are_an_error() -> None:
    reverse = node("ReverseSequence", ["x", "n"], ["y"], batch_axis=0, time_axis=1, name="turn")
    proto = model([reverse], [value("x", [2, 5])], ["y"], {"n": np.array([6, 1])})
    with pytest.raises(bslite.SpecError, match=r"'turn' .*lengths \[6, 1\] for 2 sequences of 5"):
        bslite.from_onnx(proto)
