"""ONNX models with open sizes: one ModelSpec where it can be, else one per size; shared weights, bounds."""

from typing import Any

import numpy as np
import pytest
from support.kept import is_full, with_room
from support.noise import noise
from support.onnx_models import INT64, helper, i64, model, numpy_helper, value

import bslite
from bslite import InputError, ModelSpec, from_onnx, run
from bslite.engines.cpu.engine import engine_for
from bslite.onnx.model import OnnxModel

node = helper.make_node


def every_other_column() -> Any:
    """A product, then every other column by a list of indices, which no ModelSpec has for a free size."""
    nodes = [
        node("MatMul", ["w", "x"], ["p"]),
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "one"], ["n"]),
        node("Range", ["zero", "n", "two"], ["r"]),
        node("Gather", ["p", "r"], ["y"], axis=1),
    ]
    stored = {"w": noise(32, 16), "zero": np.int64(0), "one": np.int64(1), "two": np.int64(2)}
    return model(nodes, [value("x", [16, "length"])], ["y"], stored)


def added(*labels: Any) -> Any:
    inputs = [value(f"x{i}", [label, 4]) for i, label in enumerate(labels)]
    return model([node("Add", ["x0", "x1"], ["y"])], inputs, ["y"])


@pytest.mark.parametrize("labels", [("unk__331", "unk__332"), (None, "?"), ("batch", "batch_1"), (-1, 0)])
def test_batches_without_a_meaning_are_one_size(labels: Any) -> None:
    spec = from_onnx(added(*labels))
    assert isinstance(spec, ModelSpec)
    assert [i.shape for i in spec.inputs] == [("N", 4), ("N", 4)]
    with pytest.raises(InputError):
        run(spec, [noise(2, 4), noise(3, 4)])


def test_a_call_that_tells_them_apart_is_served_too() -> None:
    m = bslite.compile(added("unk__1", "unk__2"))
    a, b = noise(3, 4), noise(1, 4)
    for left, right in ((a, a), (a, b), (b, a), (a, a)):
        assert np.array_equal(m(left, right)[0], left + right)


def test_values_that_are_built_in_are_looked_at_in_each_call() -> None:
    inputs = [value("x", ["n", 6]), value("s", [3], INT64), value("a", ["n", 6])]
    nodes = [node("Add", ["x", "a"], ["b"]), node("Reshape", ["b", "s"], ["y"]), node("Shape", ["x"], ["z"])]
    m = bslite.compile(model(nodes, inputs, ["y", "z"]))
    for n, shape in [(4, (4, 3, 2)), (4, (4, 2, 3)), (2, (3, 2, 2)), (4, (4, 3, 2)), (4, (4, 2, 3))] * 2:
        x = noise(n, 6, seed=n)
        y, z = m(x, i64(*shape), x).tuple()
        assert np.array_equal(y, (x + x).reshape(shape))
        assert z.tolist() == [n, 6]
        z[:] = 0  # the caller's own
    with pytest.raises(InputError, match="is float64, expected float32"):
        m(noise(4, 6).astype(np.float64), i64(4, 3, 2), noise(4, 6))
    m.close()


def test_a_size_that_cannot_stay_free_is_settled_by_each_call() -> None:
    m = from_onnx(every_other_column())
    assert isinstance(m, OnnxModel)
    for length in (5, 8, 5):
        x = noise(16, length)
        want = (noise(32, 16) @ x)[:, ::2]
        np.testing.assert_allclose(run(m, x), want, rtol=1e-5, atol=1e-5)
    assert m.specialised == ["x: [16, 8]", "x: [16, 5]"]
    assert "specialised to 2" in repr(m)
    assert bslite.verify(m, noise(16, 6)).passed
    assert bslite.explain(m, (16, 6), runs=1).rows
    np.testing.assert_array_equal(bslite.compile(m)(x)[0], run(m, x))


def test_a_stream_of_lengths_stays_bounded_and_shares_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    with_room(monkeypatch, 800)
    m = OnnxModel(every_other_column())
    m.run({"x": noise(16, 3)})
    (first,) = m.specs()
    weights = m.memory()["weights"]
    for length in range(4, 40):
        m.run({"x": noise(16, length)})
    assert is_full(len(spec.nodes) for spec in m.specs())
    assert 5 < len(m.specs()) < 36
    assert all(np.shares_memory(s.params["w"], first.params["w"]) for s in m.specs())
    packed = 4 * 32 * 16
    assert m.memory()["weights"] < weights + len(m.specs()) * packed  # the product's panels are there once


@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
def test_a_matrix_that_is_turned_is_turned_once(op: str) -> None:
    """The weight of a linear layer, laid out for it, is one array for all sizes."""
    nodes = [
        node("Transpose", ["x"], ["t"]),
        node(op, ["t", "w"], ["p"], **({"alpha": 0.5} if op == "Gemm" else {})),
        *every_other_column().graph.node[1:],
    ]
    stored = {"w": noise(16, 32), "zero": np.int64(0), "one": np.int64(1), "two": np.int64(2)}
    nodes[-1].input[0], nodes[-1].attribute[0].i = "p", 0
    m = OnnxModel(model(nodes, [value("x", [16, "length"])], ["y"], stored))
    for length in (5, 8):
        x = noise(16, length)
        want = (x.T @ stored["w"])[::2] * (0.5 if op == "Gemm" else 1)
        np.testing.assert_allclose(m.run({"x": x})["y"], want, rtol=1e-4, atol=1e-5)
    weights = [next(p for p in s.params.values() if p.shape == (32, 16)) for s in m.specs()]
    assert len(weights) == 2
    assert np.shares_memory(*weights)


def test_one_model_serves_a_size_that_is_free() -> None:
    nodes = [node("Relu", ["x"], ["r"]), node("GlobalAveragePool", ["r"], ["y"])]
    m = OnnxModel(model(nodes, [value("x", ["?", 3, "?", "w"])], ["y"]))
    for shape in ((1, 3, 8, 8), (2, 3, 9, 5), (1, 3, 16, 7)):
        x = noise(*shape)
        want = np.maximum(x, 0).mean((2, 3), keepdims=True)
        np.testing.assert_allclose(m.run({"x": x})["y"], want, rtol=1e-5)
    assert m.specialised == ["x: [N, 3, x.2, w]"]


def test_one_size_is_fixed_alone_where_another_can_stay_free() -> None:
    """A reader of text lines halves the height to one row; the width stays as it comes."""
    nodes = [
        node("MaxPool", ["x"], ["p"], kernel_shape=[2, 1], strides=[2, 1]),
        node("Concat", ["p", "x"], ["c"], axis=2),
        node("Reshape", ["c", "rows"], ["y"]),
    ]
    m = OnnxModel(model(nodes, [value("x", ["?", 3, "h", "w"])], ["y"], {"rows": i64(0, 9, -1)}))
    for shape in ((1, 3, 2, 8), (2, 3, 2, 9)):
        x = noise(*shape)
        want = np.concatenate([x.reshape(*shape[:2], 1, 2, -1).max(3), x], 2).reshape(len(x), 9, -1)
        assert np.array_equal(m.run({"x": x})["y"], want)
    assert m.specialised == ["x: [N, 3, 2, w]"]


def test_a_rounded_size_is_not_taken_for_the_size() -> None:
    """``x[: size // 2 * 2]``: the same as x at even sizes alone."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "one"], ["n"]),
        node("Div", ["n", "two"], ["half"]),
        node("Mul", ["half", "two"], ["even"]),
        node("Slice", ["x", "zero", "even", "one"], ["y"]),
    ]
    stored = {"one": i64(1), "two": i64(2), "zero": i64(0)}
    m = OnnxModel(model(nodes, [value("x", ["n", "m"])], ["y"], stored))
    for size in (64, 63, 7):
        x = noise(2, size)
        assert np.array_equal(m.run({"x": x})["y"], x[:, : size // 2 * 2])


def test_nothing_large_is_made_to_find_a_size() -> None:
    """A grid of all pairs of positions, of which the model needs none where it is only measured."""
    nodes = [
        node("Shape", ["x"], ["s"], start=1),
        node("Concat", ["s", "s"], ["pairs"], axis=0),
        node("ConstantOfShape", ["pairs"], ["grid"]),
        node("Add", ["grid", "half"], ["shifted"]),
        node("Expand", ["shifted", "pairs"], ["whole"]),
        node("Shape", ["whole"], ["sizes"]),
        node("Slice", ["sizes", "zero", "one"], ["first"]),
        node("Concat", ["minus", "first"], ["shape"], axis=0),
        node("Reshape", ["x", "shape"], ["y"]),
    ]
    stored = {"half": np.float32(0.5), "zero": i64(0), "one": i64(1), "minus": i64(-1)}
    spec = from_onnx(model(nodes, [value("x", ["n", "m"])], ["y"], stored), shapes={"x": (2, 1_000)})
    assert spec.inputs[0].shape == ("N", "m")
    assert spec.params == {}


def sentence_encoder() -> Any:
    """One layer of a BERT-like encoder, batch and length open, its biases written out as sums and factors."""
    width, heads = 16, 2
    nodes = [node("Gather", ["table", "ids"], ["x"])]
    for part in "qkv":
        nodes += [
            node("MatMul", ["x", f"w{part}"], [f"{part}0"]),
            node("Add", [f"{part}0", f"b{part}"], [f"{part}1"]),
            node("Mul", [f"{part}1", "factor"], [f"{part}2"]),
            node("Reshape", [f"{part}2", "heads"], [f"{part}3"]),
            node("Transpose", [f"{part}3"], [part], perm=[0, 2, 3, 1] if part == "k" else [0, 2, 1, 3]),
        ]
    nodes += [
        node("MatMul", ["q", "k"], ["scores"]),
        node("Softmax", ["scores"], ["weights"], axis=-1),
        node("MatMul", ["weights", "v"], ["heads_out"]),
        node("Transpose", ["heads_out"], ["turned"], perm=[0, 2, 1, 3]),
        node("Reshape", ["turned", "joined"], ["flat"]),
        node("Add", ["flat", "x"], ["y"]),
    ]
    stored = {
        "table": noise(50, width), "heads": i64(0, 0, heads, width // heads), "joined": i64(0, 0, width),
        "factor": np.float32(0.5),
        **{f"w{p}": noise(width, width, seed=i) for i, p in enumerate("qkv")},
        **{f"b{p}": noise(width, seed=i) for i, p in enumerate("qkv")},
    }  # fmt: skip
    return model(nodes, [value("ids", ["batch", "length"], INT64)], ["y"], stored)


def test_a_stream_of_random_lengths_is_one_model_with_few_plans_and_one_copy_of_the_weights() -> None:
    """No specialisation, a plan for each length and memory for the largest, a size seen before makes none."""
    m = OnnxModel(sentence_encoder(), threads=1)
    lengths = np.random.default_rng(0).integers(1, 200, 24)
    for length in lengths:
        assert m.run({"ids": np.ones((1, length), np.int64)})["y"].shape == (1, length, 16)
    assert m.specialised == ["ids: [N, length]"]
    (spec,) = m.specs()
    sessions = engine_for(spec)._sessions
    assert len(sessions) == len(set(lengths))
    largest = max(4 * (s.plan.arena_size + s.plan.scratch_size + 4096) for s in sessions.values())
    assert m.memory()["values"] < largest
    kept = sessions.values()
    m.run({"ids": np.ones((1, lengths[-1]), np.int64)})
    assert sessions.values() == kept  # it has used the last one again
    panels = [what for (what, *_) in engine_for(spec).weights() if what[0] == "panels"]
    assert len(panels) <= 2 * 3  # of three products; lines of one register and of two


def test_parameters_that_a_rule_makes_are_one_array_for_all_sizes() -> None:
    """Factors after a product go into its weights: once, not for each size."""
    rest = every_other_column().graph.node[1:]
    rest[-1].input[0], rest[-1].attribute[0].i = "scaled", 0
    nodes = [
        node("Transpose", ["x"], ["t"]),
        node("Gemm", ["t", "w"], ["p"]),
        node("Mul", ["p", "factors"], ["scaled"]),
        *rest,
    ]
    stored = {
        "w": noise(16, 32), "factors": noise(32), "zero": np.int64(0), "one": np.int64(1), "two": np.int64(2),
    }  # fmt: skip
    m = OnnxModel(model(nodes, [value("x", [16, "length"])], ["y"], stored))
    for length in (5, 8):
        x = noise(16, length)
        want = (x.T @ stored["w"] * stored["factors"])[::2]
        np.testing.assert_allclose(m.run({"x": x})["y"], want, rtol=1e-4, atol=1e-5)
    one, two = (
        next(p for key, p in engine_for(s).spec.params.items() if key.endswith("absorbed.weight"))
        for s in m.specs()
    )
    assert np.shares_memory(one, two)


def test_states_of_zeros_for_any_batch_leave_the_batch_free() -> None:
    """Exporters make the first states of a recurrent layer of the batch's size; zeros are what none is."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Slice", ["s", "one", "two"], ["n"]),
        node("Concat", ["one", "n", "hidden"], ["sizes"], axis=0),
        node("ConstantOfShape", ["sizes"], ["h"]),
        node("GRU", ["x", "w", "r", "", "", "h"], ["y"], hidden_size=4),
    ]
    stored = {
        "w": noise(1, 12, 3), "r": noise(1, 12, 4), "one": i64(1), "two": i64(2), "hidden": i64(4),
    }  # fmt: skip
    spec = from_onnx(model(nodes, [value("x", [5, "batch", 3])], ["y"], stored))
    assert isinstance(spec, ModelSpec)
    assert spec.inputs[0].shape == (5, "batch", 3)
    x = noise(5, 3, 3)
    alone = [run(spec, np.ascontiguousarray(x[:, n : n + 1])) for n in range(3)]
    assert np.array_equal(run(spec, x), np.concatenate(alone, axis=2))


def test_an_axis_of_one_goes_from_between_free_sizes() -> None:
    nodes = [node("Squeeze", ["x", "axes"], ["s"]), node("Neg", ["s"], ["y"])]
    spec = from_onnx(model(nodes, [value("x", [1, "a", 1, "b", 1])], ["y"], {"axes": i64(0, 2, 4)}))
    assert isinstance(spec, ModelSpec)
    assert spec.inputs[0].shape == (1, "a", 1, "b", 1)
    x = noise(1, 3, 1, 5, 1)
    assert np.array_equal(run(spec, x), -x.reshape(3, 5))


def positions(table: int) -> Any:
    """Rows of a table of positions, cut to the length, that are added to those of tokens."""
    nodes = [
        node("Shape", ["ids"], ["s"], start=1, end=2),
        node("Slice", ["numbers", "zero", "s", "one"], ["p"]),
        node("Gather", ["positions", "p"], ["rows"]),
        node("Gather", ["tokens", "ids"], ["x"]),
        node("Add", ["x", "rows"], ["y"]),
    ]
    stored = {
        "numbers": np.arange(table)[None], "positions": noise(table, 8), "tokens": noise(30, 8, seed=1),
        "zero": i64(0), "one": i64(1),
    }  # fmt: skip
    return model(nodes, [value("ids", ["batch", "length"], INT64)], ["y"], stored), stored


@pytest.mark.parametrize("table", [512, 77])
def test_positions_cut_to_the_length_leave_it_free(table: int) -> None:
    proto, stored = positions(table)
    m = OnnxModel(proto)
    for shape in ((1, 40), (3, 7), (2, 64), (1, 1)):
        ids = np.arange(np.prod(shape)).reshape(shape) % 30
        want = stored["tokens"][ids] + stored["positions"][: shape[1]]
        np.testing.assert_array_equal(m.run({"ids": ids})["y"], want)
    assert m.specialised == ["ids: [N, length]"]
    with pytest.raises(bslite.SpecError, match="do not broadcast"):
        m.run({"ids": np.zeros((1, table + 1), np.int64)})
    assert isinstance(from_onnx(proto), OnnxModel)  # a ModelSpec would not know the bound
    with pytest.warns(UserWarning, match="free sizes length are fixed"):
        assert from_onnx(proto, shapes={"ids": (2, 9)}).inputs[0].shape == ("N", 9)


def test_a_length_that_a_model_cuts_is_not_taken_for_the_length() -> None:
    """Lengths up to a bound say nothing about those beyond it."""
    proto, stored = positions(1024)
    proto.graph.node[0].output[0] = "all"
    proto.graph.node.insert(1, node("Min", ["all", "bound"], ["s"]))
    proto.graph.node[-1].input[1] = "wide"
    proto.graph.node.insert(4, node("ReduceSum", ["rows", "one"], ["wide"]))
    proto.graph.initializer.append(numpy_helper.from_array(i64(512), "bound"))
    m = OnnxModel(proto)
    for length in (40, 700, 512):
        ids = np.ones((1, length), np.int64)
        want = stored["tokens"][ids] + stored["positions"][:512][:length].sum(0)
        np.testing.assert_allclose(m.run({"ids": ids})["y"], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("op", ["Gather", "GatherND"])
def test_indices_of_all_elements_in_order_leave_sizes_free(op: str) -> None:
    """A mask looked up by the numbers of its rows and columns, as masks of transformers are."""
    nodes = [
        node("Shape", ["x"], ["n"], start=0, end=1),
        node("Shape", ["x"], ["m"], start=1, end=2),
        *(node("Squeeze", [size], [f"{size}.0"]) for size in "nm"),
        *(node("Range", ["zero", f"{size}.0", "one"], [f"r.{size}"]) for size in "nm"),
        node("Unsqueeze", ["r.n", "last"], ["rows"]),
    ]
    if op == "Gather":
        nodes += [
            node("Mul", ["rows", "m"], ["starts"]),
            node("Add", ["starts", "r.m"], ["i"]),
            node("Flatten", ["x"], ["f"], axis=2),
            node("Gather", ["f", "i"], ["g"]),
            node("Squeeze", ["g", "last"], ["y"]),
        ]
    else:
        nodes += [
            node("Shape", ["x"], ["s"]),
            node("Expand", ["rows", "s"], ["i"]),
            node("Expand", ["r.m", "s"], ["j"]),
            *(node("Unsqueeze", [name, "last"], [f"{name}.1"]) for name in "ij"),
            node("Concat", ["i.1", "j.1"], ["ij"], axis=-1),
            node("GatherND", ["x", "ij"], ["y"]),
        ]
    stored = {"zero": np.int64(0), "one": np.int64(1), "last": i64(-1)}
    m = OnnxModel(model(nodes, [value("x", ["n", "m"])], ["y"], stored))
    for shape in ((2, 5), (1, 8), (3, 1)):
        x = noise(*shape)
        assert np.array_equal(m.run({"x": x})["y"], x)
    assert m.specialised == ["x: [N, m]"]
