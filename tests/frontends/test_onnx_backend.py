"""ONNX's interface of a backend: what the conformance suite does not ask."""

from typing import Any

import numpy as np
import pytest
from support.kept import is_full, with_room
from support.noise import noise
from support.onnx_models import INT64, helper, i64, image_net, inputs_like, model, untyped, value

from bslite import InputError, UnsupportedError, compile, from_onnx, run
from bslite.onnx import backend

node = helper.make_node


def reshaping() -> Any:
    """A model that reshapes to a shape it is given."""
    inputs = [value("x", ["n", 6]), value("s", [3], INT64)]
    return model([node("Reshape", ["x", "s"], ["r"]), node("Relu", ["r"], ["y"])], inputs, ["y"])


def test_is_what_run_gives() -> None:
    x = noise(2, 3, 8, 8)
    (got,) = backend.run_model(image_net(), [x])
    assert np.array_equal(got, run(from_onnx(image_net()), x))


def test_inputs_by_name_and_as_one_array() -> None:
    rep, x = backend.prepare(image_net()), noise(1, 3, 8, 8)
    assert np.array_equal(rep.run({"x": x})[0], rep.run(x)[0])


def test_a_value_that_is_needed_is_built_in_anew_each_time() -> None:
    rep, x = backend.prepare(reshaping()), noise(4, 6)
    for shape in ((4, 2, 3), (4, 3, 2), (2, 2, 6), (4, 2, 3)):
        (got,) = rep.run([x, i64(*shape)])
        assert np.array_equal(got, np.maximum(x.reshape(shape), 0))
    assert len(rep.kept()) == 3


def test_models_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    with_room(monkeypatch, 800)
    rep = backend.prepare(reshaping())
    for n in range(1, 20):
        assert rep.run([noise(n, 6), i64(n, 2, 3)])[0].shape == (n, 2, 3)
    assert is_full(kept.operations() for kept in rep.kept())
    assert 5 < len(rep.kept()) < 19


def test_an_array_changed_afterwards_does_not_show() -> None:
    rep, x, shape = backend.prepare(reshaping()), noise(4, 6), i64(4, 2, 3)
    rep.run([x, shape])
    shape[:] = (4, 3, 2)
    assert rep.run([x, shape])[0].shape == (4, 3, 2)


def test_run_node() -> None:
    x, y = noise(2, 3), noise(3, seed=1)
    assert np.array_equal(backend.run_node(node("Add", ["x", "y"], ["z"]), [x, y])[0], x + y)
    (got,) = backend.run_node(node("Squeeze", ["x"], ["z"], axes=[0]), [x[:1]], opset_version=11)
    assert np.array_equal(got, x[0])
    with pytest.raises(InputError, match="reads 2 values, got 1"):
        backend.run_node(node("Add", ["x", "y"], ["z"]), [x])


def test_devices() -> None:
    assert backend.supports_device("CPU")
    assert not backend.supports_device("CUDA")
    with pytest.raises(UnsupportedError, match="device 'CUDA'"):
        backend.prepare(image_net(), "CUDA")


def test_wrong_inputs() -> None:
    rep = backend.prepare(image_net())
    with pytest.raises(InputError, match="takes 1 arrays"):
        rep.run([])
    with pytest.raises(InputError, match="takes 1 arrays"):
        rep.run([[1.0]])
    with pytest.raises(InputError, match="expected float32"):
        rep.run([noise(1, 3, 8, 8).astype(np.float64)])


def test_on_the_reference() -> None:
    x = noise(2, 3, 8, 8)
    (got,) = backend.run_model(image_net(), [x], backend="reference")
    assert np.array_equal(got, run(from_onnx(image_net()), x, backend="reference"))


NONE, FEW = np.zeros((0, 4), np.float32), noise(3, 4)
#: Operator, what it reads, how many of those are inputs, attributes, the results.
EMPTY: list[tuple[str, list[Any], int, dict[str, Any], list[Any]]] = [
    ("Expand", [FEW[:1], np.array([0, 4])], 1, {}, [NONE]),
    ("Tile", [FEW, np.array([0, 1])], 1, {}, [NONE]),
    ("Tile", [FEW, np.array([0, 3])], 1, {}, [np.zeros((0, 12), np.float32)]),
    ("Tile", [FEW, np.array([2, 0])], 1, {}, [np.zeros((6, 0), np.float32)]),
    ("Pad", [NONE, np.array([1, 0, 1, 1])], 1, {}, [np.zeros((2, 5), np.float32)]),
    ("TopK", [FEW[:, :0], np.array([0])], 1, {}, [FEW[:, :0], np.zeros((3, 0), np.int64)]),
    ("Resize", [FEW, "", np.float32([0.2, 2])], 1, {"mode": "linear"}, [np.zeros((0, 8), np.float32)]),
    ("Resize", [FEW, "", "", np.array([0, 2])], 1, {}, [np.zeros((0, 2), np.float32)]),
    ("MatMul", [FEW[:, :0], np.zeros((0, 2), np.float32)], 2, {}, [np.zeros((3, 2), np.float32)]),
]


@pytest.mark.parametrize(("op", "reads", "count", "given", "wants"), EMPTY)
@pytest.mark.parametrize("first", [None, "n"])
def test_what_is_empty(
    op: str, reads: list[Any], count: int, given: Any, wants: list[Any], first: str | None
) -> None:
    """Out of something, or made something of."""
    names = ["" if isinstance(x, str) else f"x{i}" for i, x in enumerate(reads)]
    feed = dict(zip(names[:count], reads[:count], strict=True))
    stored = {n: x for n, x in zip(names, reads, strict=True) if n and n not in feed}
    outs = [f"y{i}" for i in range(len(wants))]
    made_by = node(op, names, outs, **given)
    made = compile(model([made_by], inputs_like(feed, first), untyped(*outs), stored, 18))(feed)
    for got, want in zip(made.tuple(), wants, strict=True):
        np.testing.assert_array_equal(got, want, strict=True)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scans_of_no_steps(axis: int) -> None:
    """States pass through; results are as large as the body says."""
    body = helper.make_graph(
        [node("Add", ["s", "x"], ["t"]), node("Identity", ["t"], ["o"])],
        "body", [value("s", [2]), value("x", [2])], [value("t", [2]), value("o", [2])],
    )  # fmt: skip
    scan = node("Scan", ["s0", "xs"], ["last", "all"], body=body, num_scan_inputs=1, scan_output_axes=[axis])
    feed = {"s0": noise(2), "xs": np.zeros((0, 2), np.float32)}
    for first in (None, "n"):
        compiled = compile(model([scan], inputs_like(feed, first), untyped("last", "all")))
        last, every = compiled(feed).tuple()
        np.testing.assert_array_equal(last, feed["s0"], strict=True)
        assert every.shape == ((2, 0) if axis else (0, 2))
        if first:
            xs = noise(3, 2)
            np.testing.assert_allclose(compiled(feed["s0"], xs)[0], feed["s0"] + xs.sum(0), rtol=1e-6)
