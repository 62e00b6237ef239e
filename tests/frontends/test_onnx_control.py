"""Loop and Scan written out, against loops in NumPy; and what is said where they cannot be.

ONNX's own evaluator is no judge: it knows no directions and no axes, and joins where it should stack. Its
node tests are in `test_onnx_conformance`.
"""

from typing import Any

import numpy as np
import pytest
from support.noise import noise
from support.onnx_models import BOOL, FLOAT, INT64, helper, model, one, value

from bslite import SpecError, UnsupportedError, from_onnx, run
from bslite.frontends.onnx.control import MAX_STEPS

node = helper.make_node
X = [value("x", [3])]


def body(nodes: Any, states: dict[str, str], stacked: Any = (), condition: str = "going") -> Any:
    """The graph of a Loop: ``states`` are the names in and out."""
    return helper.make_graph(
        list(nodes), "body",
        [value("step", [], INT64), value("going", [], BOOL), *(value(s, None) for s in states)],
        [value(condition, [], BOOL), *(value(s, None) for s in (*states.values(), *stacked))],
    )  # fmt: skip


def negation() -> Any:
    return body([node("Neg", ["v"], ["next"])], {"v": "next"})


def power(condition: str = "") -> Any:
    """x -> (x @ w) three times, and all of the results, each plus its step."""
    inside = [
        node("MatMul", ["v", "w"], ["next"], name="product"),
        node("Cast", ["step"], ["f"], to=FLOAT),
        node("Add", ["next", "f"], ["shown"]),
        node("Identity", ["going"], ["still"]),
    ]
    graph = body(inside, {"v": "next"}, ["shown"], "still")
    loop = node("Loop", ["n", condition, "x"], ["y", "all"], body=graph, name="loop")
    stored = {"w": noise(4, 4), "n": np.int64(3), "yes": np.array(True)}
    return model([loop], [value("x", ["n0", 4])], ["y", "all"], stored)


@pytest.mark.parametrize("condition", ["", "yes"])
@pytest.mark.parametrize("batch", [1, 5])
def test_loop(condition: str, batch: int) -> None:
    proto = power(condition)
    spec = from_onnx(proto)
    assert [n.name for n in spec.nodes if n.op in ("linear", "matmul")] == [
        f"loop/{i}/product" for i in range(3)
    ]
    x = noise(batch, 4)
    want, rows = x, []
    for step in range(3):
        want = want @ noise(4, 4)
        rows.append(want + step)
    y, every = run(spec, x)
    assert np.allclose(y, want, rtol=1e-5, atol=1e-5)
    assert np.allclose(every, np.stack(rows), rtol=1e-5, atol=1e-5)


def test_while() -> None:
    """A condition computed from constants: doubled until above 20; no number of steps."""
    inside = [
        node("Add", ["v", "v"], ["next"]),
        node("Add", ["k", "k"], ["k2"]),
        node("Less", ["k2", "end"], ["still"]),
    ]
    graph = body(inside, {"v": "next", "k": "k2"}, condition="still")
    stored = {"k0": np.float32(1), "end": np.float32(20), "yes": np.array(True)}
    loop = node("Loop", ["", "yes", "x", "k0"], ["y", "k"], body=graph)
    proto = model([loop], [value("x", [3])], ["y", "k"], stored)
    x = noise(3)
    y, k = run(from_onnx(proto), x)
    assert np.array_equal(y, 32 * x)
    assert k == 32


def test_no_step_at_all() -> None:
    proto = one("Loop", "n", "", "x", of=X, n=np.int64(0), body=negation())
    assert np.array_equal(run(from_onnx(proto), noise(3)), noise(3))


def test_loops_within_loops_see_what_is_outside() -> None:
    inner = body([node("Add", ["a", "v"], ["b"])], {"a": "b"})
    outer_nodes = [
        node("Loop", ["two", "", "v"], ["w"], body=_renamed(inner), name="inner"),
        node("Mul", ["w", "half"], ["next"]),
    ]
    outer = body(outer_nodes, {"v": "next"})
    stored = {"two": np.int64(2), "half": np.float32(0.25)}
    proto, x = one("Loop", "two", "", "x", of=X, body=outer, **stored), noise(3)
    once = (x + 2 * x) / 4  # the inner loop adds the state it was given, twice
    assert np.allclose(run(from_onnx(proto), x), (once + 2 * once) / 4, atol=1e-6)


def _renamed(graph: Any) -> Any:
    """With inputs of names of its own."""
    graph.input[0].name, graph.input[1].name = "step2", "going2"
    graph.output[0].name = "going2"
    return graph


def scanned(**attributes: Any) -> Any:
    """Running sums of rows of x, less the rows of another sequence; the sums stacked."""
    graph = helper.make_graph(
        [node("Add", ["s", "a"], ["t"]), node("Sub", ["t", "b"], ["u"]), node("Identity", ["u"], ["shown"])],
        "body", [value("s", [4]), value("a", [4]), value("b", [4])], [value("u", [4]), value("shown", [4])],
    )  # fmt: skip
    scan = node("Scan", ["s0", "x", "z"], ["last", "all"], body=graph, num_scan_inputs=2, **attributes)
    return model([scan], [value("x", [5, 4]), value("z", [5, 4])], ["last", "all"], {"s0": noise(4, seed=9)})


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"scan_input_directions": [1, 0]},
        {"scan_output_directions": [1]},
        {"scan_output_axes": [1]},
        {"scan_output_axes": [-1], "scan_output_directions": [1], "scan_input_directions": [1, 1]},
    ],
)
def test_scan(attributes: dict[str, Any]) -> None:
    x, z, total, rows = noise(5, 4), noise(5, 4, seed=1), noise(4, seed=9), []
    first, second = attributes.get("scan_input_directions", [0, 0])
    for a, b in zip(x[:: -1 if first else 1], z[:: -1 if second else 1], strict=True):
        total = total + a - b
        rows.append(total)
    turned = attributes.get("scan_output_directions", [0])[0]
    want = np.stack(rows[:: -1 if turned else 1], attributes.get("scan_output_axes", [0])[0])
    last, every = run(from_onnx(scanned(**attributes)), [x, z])
    assert np.allclose(last, total, atol=1e-5)
    assert np.allclose(every, want, atol=1e-5)


def test_scan_along_another_axis_of_an_open_batch() -> None:
    graph = helper.make_graph(
        [node("Add", ["s", "a"], ["t"]), node("Identity", ["t"], ["shown"])],
        "body", [value("s", None), value("a", None)], [value("t", None), value("shown", None)],
    )  # fmt: skip
    nodes = [
        node("ReduceSum", ["x", "axis"], ["r"], keepdims=0),
        node("Sub", ["r", "r"], ["s0"]),
        node(
            "Scan", ["s0", "x"], ["", "y"], body=graph,
            num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[1],
        ),
    ]  # fmt: skip
    spec = from_onnx(model(nodes, [value("x", ["n", 6, 4])], ["y"], {"axis": np.array([1])}))
    for batch in (1, 3):
        x = noise(batch, 6, 4)
        assert np.allclose(run(spec, x), np.cumsum(x, 1), atol=1e-5)


class TestRefused:
    """Why a loop cannot be written out, and what inside it would not run either."""

    def refuse(
        self, *reads: str, of: Any = X, error: type[Exception] = UnsupportedError, **given: Any
    ) -> str:
        """The message about a loop of these values, arrays in ``given`` stored."""
        with pytest.raises(error) as caught:
            from_onnx(one("Loop", *reads, of=of, **given))
        return str(caught.value)

    def test_a_number_of_steps_from_an_input(self) -> None:
        graph = body([node("Det", ["v"], ["next"], name="det")], {"v": "next"})
        inputs = [value("x", [3, 2, 2]), value("n", [], INT64)]
        message = self.refuse("n", "", "x", of=inputs, body=graph)
        assert "1 x Loop: its number of steps is computed from the input n" in message
        assert "1 x Det: bslite has no such operator; at it/body/det" in message

    def test_a_condition_from_an_input(self) -> None:
        inside = [node("Neg", ["v"], ["next"]), node("ReduceMax", ["v"], ["m"], keepdims=0)]
        inside.append(node("Less", ["m", "one"], ["still"]))
        graph = body(inside, {"v": "next"}, condition="still")
        message = self.refuse("", "yes", "x", yes=np.array(True), one=np.float32(1), body=graph)
        assert "1 x Loop: the condition to go on is computed from the input; at it" in message

    def test_too_many_steps(self) -> None:
        message = self.refuse("n", "", "x", n=np.int64(10**9), body=negation())
        assert f"Loop: of {10**9} steps; at most {MAX_STEPS} are written out" in message
        message = self.refuse("", "yes", "x", yes=np.array(True), body=negation())
        assert f"Loop: of more than {MAX_STEPS} steps" in message

    def test_what_is_inside_is_named_by_its_step(self) -> None:
        graph = body(
            [node("Det", ["v"], ["d"], name="det"), node("Add", ["v", "d"], ["next"])], {"v": "next"}
        )
        message = self.refuse("n", "", "x", of=[value("x", [2, 2])], n=np.int64(2), body=graph)
        assert "2 x Det: bslite has no such operator; at it/0/det, it/1/det" in message

    def test_a_body_that_does_not_fit(self) -> None:
        message = self.refuse("n", "", n=np.int64(2), body=negation(), error=SpecError)
        assert "its body takes 3 values and gives 2; it has 0 states" in message

    def test_empty_loops_within_loops(self) -> None:
        """As many steps as a power of 256, and nothing to do in them."""
        graph = body([], {"v": "v"})
        for depth in range(6):
            inner = node("Loop", ["n", "", "v"], [f"w{depth}"], body=graph)
            graph = body([inner], {"v": f"w{depth}"})
        message = self.refuse("n", "", "x", n=np.int64(256), body=graph, error=SpecError)
        assert "more than 50000 nodes" in message
