"""Control flow and sizes that are computed at run time: what runs between compiled pieces, against NumPy."""

from typing import Any

import numpy as np
import pytest
from support.noise import noise
from support.onnx_models import BOOL, FLOAT, INT64, helper, model, value

import bslite
from bslite.onnx import backend

node = helper.make_node


def graph(nodes: Any, inputs: Any, outputs: Any) -> Any:
    """A graph inside a node."""
    return helper.make_graph(list(nodes), "inside", list(inputs), [value(o, None) for o in outputs])


def either(then: Any, otherwise: Any) -> Any:
    """If the sum of x is positive."""
    nodes = [
        node("Mul", ["x", "w"], ["h"], name="before"),
        node("ReduceSum", ["h"], ["s"], keepdims=0, name="sum"),
        node("Greater", ["s", "zero"], ["c"], name="ask"),
        node("If", ["c"], ["y"], name="choose", then_branch=then, else_branch=otherwise),
        node("Neg", ["y"], ["z"], name="after"),
    ]
    stored = {"w": np.full(4, 2, np.float32), "zero": np.float32(0)}
    return model(nodes, [value("x", ["n", 4])], ["z"], stored)


def test_the_branch_of_a_computed_condition_reads_what_is_around_it() -> None:
    made = either(
        graph([node("Add", ["h", "w"], ["a"])], [], ["a"]),
        graph([node("ReduceSum", ["h"], ["b"], keepdims=0)], [], ["b"]),
    )
    rep = backend.prepare(made)
    x = np.abs(noise(3, 4))
    for batch in (3, 1, 2):
        np.testing.assert_allclose(rep.run([x[:batch]])[0], -(2 * x[:batch] + 2), rtol=1e-6)
        np.testing.assert_allclose(rep.run([-x[:batch]])[0], 2 * x[:batch].sum(), rtol=1e-6)


def test_a_branch_never_taken_need_not_be_valid_and_the_one_taken_is_named() -> None:
    wrong = graph([node("Squeeze", ["h", "axis"], ["b"], name="squeeze")], [], ["b"])
    made = either(graph([node("Identity", ["h"], ["a"])], [], ["a"]), wrong)
    made.graph.initializer.append(helper.make_tensor("axis", INT64, [1], [1]))
    rep, x = backend.prepare(made), np.abs(noise(3, 4))
    np.testing.assert_allclose(rep.run([x])[0], -2 * x)
    with pytest.raises(bslite.SpecError, match="node 'choose/else/squeeze'"):
        rep.run([-x])


@pytest.mark.usefixtures("without_det")
def test_an_operator_that_bslite_lacks_counts_only_where_it_is_taken() -> None:
    lacking = graph([node("Det", ["square"], ["b"], name="det")], [], ["b"])
    made = either(graph([node("Identity", ["h"], ["a"])], [], ["a"]), lacking)
    made.graph.initializer.append(helper.make_tensor("square", FLOAT, [2, 2], [1, 2, 3, 4]))
    x = np.abs(noise(3, 4))
    rep = backend.prepare(made)
    np.testing.assert_allclose(rep.run([x])[0], -2 * x)
    with pytest.raises(bslite.UnsupportedError, match=r"Det.*at choose/else/det"):
        rep.run([-x])
    (got,) = backend.prepare(made, fallback="silent").run([-x])
    np.testing.assert_allclose(got, 2, rtol=1e-6)


def body(nodes: Any, states: dict[str, str], stacked: Any = (), condition: str = "going") -> Any:
    """The graph of a Loop: ``states`` are the names in and out."""
    inputs = [value("step", [], INT64), value("going", [], BOOL), *(value(s, None) for s in states)]
    return graph(nodes, inputs, [condition, *states.values(), *stacked])


def test_loop_until_a_computed_condition() -> None:
    """x -> x @ w until its largest is above 100; the results on the way."""
    inside = [
        node("MatMul", ["v", "w"], ["next"]),
        node("ReduceMax", ["next"], ["most"], keepdims=0),
        node("Less", ["most", "end"], ["still"]),
        node("Identity", ["next"], ["shown"]),
    ]
    loop = node(
        "Loop",
        ["", "yes", "h"],
        ["y", "all"],
        name="grow",
        body=body(inside, {"v": "next"}, ["shown"], "still"),
    )
    w = np.abs(noise(4, 4)) + 0.1
    stored = {"w": w, "end": np.float32(100), "yes": np.array(True)}
    rep = backend.prepare(
        model([node("Abs", ["x"], ["h"]), loop], [value("x", ["n", 4])], ["y", "all"], stored)
    )
    for batch in (1, 3):
        x = noise(batch, 4)
        want, rows = np.abs(x), []
        while True:
            want = want @ w
            rows.append(want)
            if want.max() >= 100:
                break
        y, every = rep.run([x])
        np.testing.assert_allclose(y, want, rtol=1e-5)
        np.testing.assert_allclose(every, np.stack(rows), rtol=1e-5)


def test_a_list_that_grows_in_a_loop_has_no_plan_for_each_length() -> None:
    """What decoders do: the largest of each step is appended to those before."""
    inside = [
        node("MatMul", ["v", "w"], ["next"]),
        node("ArgMax", ["next"], ["best"], axis=1, keepdims=1, name="best"),
        node("Concat", ["list", "best"], ["longer"], axis=1, name="append"),
        node("ReduceMax", ["next"], ["most"], keepdims=0),
        node("Less", ["most", "end"], ["still"]),
    ]
    states = {"v": "next", "list": "longer"}
    before = [node("ArgMax", ["x"], ["first"], axis=1, keepdims=1), node("Abs", ["x"], ["h"])]
    loop = node("Loop", ["", "yes", "h", "first"], ["y", "all"], body=body(inside, states, (), "still"))
    w = np.abs(noise(4, 4)) + 0.1
    w *= 1.3 / np.abs(np.linalg.eigvals(w)).max()
    stored = {"w": w, "end": np.float32(50), "yes": np.array(True)}
    rep = backend.prepare(model([*before, loop], [value("x", [2, 4])], ["y", "all"], stored))
    x = noise(2, 4)
    state, picked = np.abs(x), [x.argmax(1)]
    while len(picked) == 1 or state.max() < 50:
        state = state @ w
        picked.append(state.argmax(1))
    assert len(picked) > 8
    first = rep.run([x])
    kept = rep.kept()
    again = rep.run([x])
    assert rep.kept() == kept
    assert len(kept) < len(picked)
    np.testing.assert_array_equal(first[1], np.stack(picked, 1))
    assert [y.tobytes() for y in first] == [y.tobytes() for y in again]


def test_a_loop_of_more_steps_than_are_written_out_compiles_its_body_once() -> None:
    inside = [
        node("Add", ["v", "one"], ["next"]),
        node("Add", ["step", "step"], ["twice"]),
        node("Unsqueeze", ["twice", "axis"], ["from"]),
        node("Add", ["from", "by"], ["to"]),
        node("Slice", ["table", "from", "to", "axis"], ["shown"], name="cut"),
    ]
    loop = node("Loop", ["n", "", "x"], ["y", "all"], body=body(inside, {"v": "next"}, ["shown"]))
    stored = {
        "one": np.float32(1), "n": np.int64(300), "axis": np.array([0]), "by": np.array([2]),
        "table": noise(600, 3),
    }  # fmt: skip
    rep = backend.prepare(model([loop], [value("x", [4])], ["y", "all"], stored))
    x = noise(4)
    y, every = rep.run([x])
    np.testing.assert_allclose(y, x + 300, rtol=1e-4)
    np.testing.assert_array_equal(every, noise(600, 3).reshape(300, 2, 3))
    assert len(rep.kept()) <= 3
    made = rep.kept()
    rep.run([x])
    assert rep.kept() == made


def test_no_step_at_all_stacks_nothing() -> None:
    declared = body([node("Neg", ["v"], ["next"]), node("Abs", ["v"], ["shown"])], {"v": "next"})
    declared.output.append(value("shown", [3]))
    inputs = [value("x", [3]), value("k", [5])]
    nodes = [
        node("NonZero", ["k"], ["found"]),
        node("Size", ["found"], ["n"]),
        node("Loop", ["n", "", "x"], ["y", "all"], body=declared),
    ]
    rep = backend.prepare(model(nodes, inputs, ["y", "all"]))
    y, every = rep.run([noise(3), np.zeros(5, np.float32)])
    np.testing.assert_array_equal(y, noise(3))
    assert every.shape == (0, 3)
    y, every = rep.run([noise(3), np.float32([0, 1, 0, 2, 3])])
    np.testing.assert_array_equal(y, -noise(3))
    assert every.shape == (3, 3)


def test_scan_of_any_length() -> None:
    inside = graph(
        [node("Add", ["s", "a"], ["t"]), node("Mul", ["t", "half"], ["shown"])],
        [value("s", [4]), value("a", [4])], ["t", "shown"],
    )  # fmt: skip
    scan = node(
        "Scan", ["s0", "x"], ["last", "all"], body=inside, num_scan_inputs=1, scan_input_directions=[1]
    )
    stored = {"s0": np.zeros(4, np.float32), "half": np.float32(0.5)}
    rep = backend.prepare(model([scan], [value("x", ["t", 4])], ["last", "all"], stored))
    for length in (300, 7, 400):
        x = noise(length, 4)
        last, every = rep.run([x])
        sums = np.cumsum(x[::-1], 0)
        np.testing.assert_allclose(last, sums[-1], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(every, sums / 2, rtol=1e-4, atol=1e-4)


def chosen() -> Any:
    """Rows of x with a positive first entry, times w; and how many there are, as a shape."""
    nodes = [
        node("Gather", ["x", "zero"], ["first"], axis=1),
        node("Greater", ["first", "nought"], ["keep"]),
        node("NonZero", ["keep"], ["places"]),
        node("Transpose", ["places"], ["rows"]),
        node("GatherND", ["x", "rows"], ["picked"]),
        node("MatMul", ["picked", "w"], ["y"]),
        node("Shape", ["y"], ["sh"]),
        node("ConstantOfShape", ["sh"], ["o"], value=helper.make_tensor("v", FLOAT, [1], [3])),
        node("Add", ["o", "y"], ["z"]),
    ]
    stored = {"zero": np.array(0), "nought": np.float32(0), "w": noise(4, 5)}
    return model(nodes, [value("x", ["n", 4])], ["z"], stored)


def test_sizes_that_depend_on_values_none_included() -> None:
    rep = backend.prepare(chosen())
    for x in (noise(6, 4), -noise(6, 4), -np.abs(noise(3, 4)), np.abs(noise(2, 4))):
        (got,) = rep.run([x])
        np.testing.assert_allclose(got, x[x[:, 0] > 0] @ noise(4, 5) + 3, rtol=1e-5, atol=1e-5)


def test_a_size_computed_in_the_middle_is_not_another_plan_for_each_value() -> None:
    nodes = [
        node("Relu", ["x"], ["h"]),
        node("ReduceSum", ["h"], ["s"], keepdims=0),
        node("Cast", ["s"], ["k"], to=INT64),
        node("Unsqueeze", ["k", "axis"], ["to"]),
        node("Slice", ["table", "axis", "to", "axis"], ["part"], name="cut"),
        node("ReduceSum", ["part"], ["y"], keepdims=0),
    ]
    table = noise(50)
    rep = backend.prepare(model(nodes, [value("x", [3])], ["y"], {"axis": np.array([0]), "table": table}))
    for n in (3, 7, 2, 30, 11, 49, 5, 3):
        (got,) = rep.run([np.float32([n, -1, 0.5])])
        np.testing.assert_allclose(got, table[:n].sum(), rtol=1e-4, atol=1e-5)


def test_sequences_and_what_they_refuse() -> None:
    nodes = [
        node("SplitToSequence", ["x", "two"], ["parts"], axis=0),
        node("SequenceAt", ["parts", "n"], ["part"], name="pick"),
        node("Relu", ["part"], ["y"]),
    ]
    inputs = [value("x", [6, 3]), value("n", [], INT64)]
    compiled = bslite.compile(model(nodes, inputs, ["y"], {"two": np.array(2)}))
    x = noise(6, 3)
    np.testing.assert_array_equal(compiled(x=x, n=np.array(-1))["y"], np.maximum(x[4:], 0))
    np.testing.assert_array_equal(compiled(x=x, n=np.array(1))["y"], np.maximum(x[2:4], 0))
    with pytest.raises(bslite.InputError, match=r"node 'pick' \(SequenceAt\): position 3 of a sequence of 3"):
        compiled(x=x, n=np.array(3))


def test_what_numpy_finds_wrong_names_the_node_and_what_came() -> None:
    nodes = [node("NonZero", ["x"], ["n"]), node("GatherND", ["x", "n"], ["y"], name="beyond")]
    with pytest.raises(bslite.BsliteError, match="node 'beyond'"):
        backend.prepare(model(nodes, [value("x", [2, 3])], ["y"])).run([np.ones((2, 3), np.float32)])


def handed_through() -> Any:
    """Five steps of h = tanh(h @ w) + p @ w, where w and p = -x go through the loop as states."""
    kinds = {"i": INT64, "go": BOOL, "h": FLOAT, "w_in": FLOAT, "p_in": FLOAT, "n": INT64}
    inside = helper.make_graph(
        [
            node("MatMul", ["h", "w_in"], ["hw"]),
            node("Tanh", ["hw"], ["t"]),
            node("MatMul", ["p_in", "w_in"], ["pw"]),
            node("Add", ["t", "pw"], ["h_out"]),
            node("Add", ["n", "one"], ["n_out"]),
            node("Less", ["n_out", "most"], ["more"]),
            node("Identity", ["w_in"], ["w_out"]),
            node("Identity", ["h_out"], ["shown"]),
        ],
        "inside",
        [value(name, None, kind) for name, kind in kinds.items()],
        [value(o, None) for o in ("more", "h_out", "w_out", "p_in", "n_out", "shown")],
    )
    results = ["y", "w_last", "p_last", "count", "all"]
    nodes = [
        node("Neg", ["x"], ["p"]),
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Greater", ["s", "low"], ["c"]),
        node("Loop", ["", "c", "x", "w", "p", "zero"], results, body=inside),
    ]
    stored = {
        "w": noise(4, 4), "one": np.int64(1), "most": np.int64(5), "zero": np.int64(0),
        "low": np.float32(-1e9),
    }  # fmt: skip
    return model(nodes, [value("x", ["n", 4])], results, stored)


def test_what_no_step_changes_is_a_constant_of_the_body_or_computed_once() -> None:
    """Exporters hand weights through a loop as its states: they must be packed, not inputs of each step."""
    rep = backend.prepare(handed_through())
    x = noise(3, 4)
    y, w_last, p_last, count, every = rep.run([x])
    w, h, rows = noise(4, 4), x.astype(np.float64), []
    for _ in range(5):
        h = np.tanh(h @ w) - x @ w
        rows.append(h)
    np.testing.assert_allclose(y, h, rtol=1e-5)
    np.testing.assert_allclose(every, rows, rtol=1e-5)
    assert np.array_equal(w_last, w)
    assert np.array_equal(p_last, -x)
    assert int(count) == 5
    inside = [str(s) for s in rep.kept() if "h:" in str(s)]
    assert inside == ["h: [3, 4], pw: [3, 4], n: []"]
    assert len(rep.kept()) == 3  # before the loop, once for all steps, and a step


def test_a_few_integers_between_others_are_no_model() -> None:
    nodes = [
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Greater", ["s", "zero"], ["c"]),
        node(
            "If", ["c"], ["k"], name="choose",
            then_branch=graph([node("Add", ["n", "one"], ["a"])], [], ["a"]),
            else_branch=graph([node("Sub", ["n", "one"], ["b"])], [], ["b"]),
        ),
        node("Mul", ["k", "n"], ["y"]),
        node("Less", ["y", "n"], ["z"]),
    ]  # fmt: skip
    stored = {"zero": np.float32(0), "one": np.int64(1)}
    rep = backend.prepare(model(nodes, [value("x", ["m"]), value("n", [2], INT64)], ["y", "z"], stored))
    n = np.array([2**30, -3])  # whose product with itself is beyond 32 bits
    for sign, by in ((1, 1), (-1, 1), (1, 1), (1, 2), (1, 1)):  # what is known comes again
        y, z = rep.run([sign * np.ones(3, np.float32), n * by])
        assert y.tolist() == ((n * by + sign) * n * by).tolist()
        assert z.tolist() == (y < n * by).tolist()
        y[:] = 7  # it is the caller's
    wide = np.arange(1000).reshape(2, 500)[:, :1].repeat(500, 1)
    rep = backend.prepare(model(nodes, [value("x", ["m"]), value("n", None, INT64)], ["y", "z"], stored))
    for count in (2, 500, 501, 2):
        (y, _), one = rep.run([np.ones(3, np.float32), wide[0, :count]]), wide[0, :count]
        assert y.tolist() == ((one + 1) * one).tolist()
    assert [str(s) for s in rep.kept()] == ["x: [N]"]
