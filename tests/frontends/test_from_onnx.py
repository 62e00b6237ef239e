"""`from_onnx`: names, free sizes, opsets, constants, functions; results against ONNX's own evaluator."""

from typing import Any

import numpy as np
import pytest
from support.check import assert_three_way
from support.noise import noise
from support.onnx_models import (
    BOOL,
    INT64,
    SMALL,
    evaluated,
    helper,
    i64,
    model,
    numpy_helper,
    one,
    tokens,
    value,
)

from bslite import InputError, ModelSpec, SpecError, UnsupportedError, from_onnx, load, reference, run
from bslite.machine import Machine
from bslite.passes import simplify
from bslite.plan import build_plan

node = helper.make_node


def sample(spec: ModelSpec, batch: int, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    shapes = [(batch, *i.example[1:]) for i in spec.inputs]
    return [
        rng.standard_normal(s).astype(np.float32) if i.dtype == "float32" else rng.integers(0, 11, s)
        for i, s in zip(spec.inputs, shapes, strict=True)
    ]


@pytest.mark.parametrize("name", SMALL)
def test_agrees_with_onnx(name: str) -> None:
    """At several batches, the engine against onnx's reference and our own in float64."""
    proto = SMALL[name]()
    spec = from_onnx(proto)
    for batch in (1, 3):
        inputs = sample(spec, batch)
        peer = evaluated(proto, *inputs)
        exact = reference.run(spec, inputs, np.float64)
        assert_three_way(run(spec, inputs), peer[0].astype(np.float32), exact[0])


@pytest.mark.parametrize("axes", [(2.0, 3.0), (0.5, 0.6), (2.0, 1.0)])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners", "asymmetric"])
@pytest.mark.parametrize("by", ["scales", "sizes"])
def test_images_whose_channels_are_last_are_resized_as_they_lie(
    axes: tuple[float, float], mode: str, coordinates: str, by: str
) -> None:
    """Both axes of few taps in one step, with the bits of images whose channels come second."""
    x, how = noise(2, 6, 10, 19), {"mode": mode, "coordinate_transformation_mode": coordinates}
    scales = np.array([1, *axes, 1], np.float32)
    to = scales if by == "scales" else (np.array(x.shape) * scales).astype(np.int64)

    def resized(shape: list[int], to: Any) -> Any:
        reads = ["x", "", "to"] if by == "scales" else ["x", "", "", "to"]
        return model([node("Resize", reads, ["y"], **how)], [value("x", shape)], ["y"], {"to": to})

    second = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    last = resized([2, 6, 10, 19], to)
    want = run(from_onnx(resized([2, 19, 6, 10], to[[0, 3, 1, 2]])), [second])
    got = run(from_onnx(last), [x])
    if axes[1] == 1 or mode == "cubic":  # axis by axis, in another order
        exact = reference.run(from_onnx(last), [x], np.float64)[0]
        assert_three_way(got, want.transpose(0, 2, 3, 1), exact)
    else:
        assert got.tobytes() == np.ascontiguousarray(want.transpose(0, 2, 3, 1)).tobytes()
        plan = build_plan(simplify(from_onnx(last)), [x.shape], Machine(threads=2, l2=1 << 20))
        assert len(plan.steps) == 1


@pytest.mark.parametrize("name", SMALL)
def test_survives_a_bslite_file(name: str, tmp_path: Any) -> None:
    spec = from_onnx(SMALL[name]())
    spec.save(tmp_path / "m.safetensors")
    (x,) = sample(spec, 2)
    assert np.array_equal(run(load(tmp_path / "m.safetensors"), x), run(spec, x))


def test_a_path_bytes_and_a_proto_give_the_same(tmp_path: Any) -> None:
    proto = tokens()
    (tmp_path / "net.onnx").write_bytes(proto.SerializeToString())
    for given in (proto, proto.SerializeToString(), tmp_path / "net.onnx", str(tmp_path / "net.onnx")):
        assert from_onnx(given).name == "small"
    proto.graph.ClearField("name")
    (tmp_path / "net.onnx").write_bytes(proto.SerializeToString())
    assert from_onnx(tmp_path / "net.onnx").name == "net"
    assert from_onnx(proto, name="mine").name == "mine"


class TestNames:
    """Layers are named after nodes, else after outputs; parameters after initialisers."""

    def test_layers_and_parameters(self) -> None:
        spec = from_onnx(SMALL["image_net"]())
        assert [n.name for n in spec.nodes][:3] == ["conv", "n", "r"]
        assert set(spec.params) == {"w", "b", "s", "o", "m", "v", "w2", "fc", "fb"}

    def test_layers_of_a_function_are_below_its_call(self) -> None:
        spec = from_onnx(SMALL["functions"]())
        assert "block/b" in [n.name for n in spec.nodes]
        assert "block/c/b" in [n.name for n in spec.nodes]

    def test_a_node_of_several_layers(self) -> None:
        nodes = [node("Gemm", ["x", "w", "c"], ["y"], name="fc", alpha=0.5)]
        inputs = [value("x", [2, 3]), value("w", [3, 4]), value("c", [4])]
        names = [n.name for n in from_onnx(model(nodes, inputs, ["y"])).nodes]
        assert names == ["fc.matmul", "fc.alpha", "fc.mul", "fc"]


class TestFreeSizes:
    """What is left open at axis 0 is the batch; the rest keeps the file's names."""

    def relu(self, *dims: Any) -> Any:
        return model([node("Relu", ["x"], ["y"])], [value("x", dims)], ["y"])

    def test_the_batch(self) -> None:
        assert from_onnx(self.relu("batch", 3)).inputs[0].shape == ("N", 3)
        assert from_onnx(self.relu(None, 3)).inputs[0].shape == ("N", 3)
        assert from_onnx(self.relu(5, 3)).inputs[0].shape == (5, 3)

    def test_others_by_an_example_found_or_given(self) -> None:
        spec = from_onnx(self.relu("batch", "h"))
        assert (spec.inputs[0].shape, spec.inputs[0].example[0]) == (("N", "h"), 1)
        spec = from_onnx(self.relu("batch", "h", "batch"), shapes={"x": (2, 7, 2)})
        assert (spec.inputs[0].shape, spec.inputs[0].example) == (("N", "h", "N"), (2, 7, 2))

    @pytest.mark.parametrize(
        ("shape", "message"),
        [((2,), "2 dimensions"), ((2, 8), "does not fit"), ((0, 3), "axis 0"), ((-1, 3), "negative")],
    )
    def test_an_example_that_does_not_fit(self, shape: Any, message: str) -> None:
        with pytest.raises((InputError, SpecError), match=message):
            from_onnx(self.relu("batch", 3), shapes={"x": shape})

    def test_an_unknown_input(self) -> None:
        with pytest.raises(InputError, match="no input 'z'"):
            from_onnx(self.relu(1), shapes={"z": (1,)})

    def test_a_shape_the_file_does_not_say(self) -> None:
        proto = self.relu(1)
        proto.graph.input[0].type.tensor_type.ClearField("shape")
        x = noise(2, 5)
        assert np.array_equal(run(from_onnx(proto), x), np.maximum(x, 0))
        assert from_onnx(proto, shapes={"x": (2, 3)}).inputs[0].shape == (2, 3)

    @pytest.mark.parametrize("op", ["Expand", "Tile"])
    @pytest.mark.parametrize("computed", [False, True])
    def test_a_token_for_every_image(self, op: str, computed: bool) -> None:
        """A token, known or computed, repeated for each image: torch's ``expand`` and ``repeat``."""
        times = i64(1, 4) if op == "Expand" else i64(1, 1)
        nodes = [
            node("Relu", ["token"], ["t"]),
            node("Shape", ["x"], ["s"], start=0, end=1),
            node("Concat", ["s", "rest"], ["to"], axis=0),
            node(op, ["t", "to"], ["ts"]),
            node("Concat", ["ts", "x"], ["y"], axis=1),
        ]
        token, given = noise(1, 1, 4), [value("x", ["n", 3, 4])]
        stored = {"rest": times} if computed else {"token": token, "rest": times}
        spec = from_onnx(model(nodes, [*given, *[value("token", [1, 1, 4])] * computed], ["y"], stored))
        assert isinstance(spec, ModelSpec)
        for batch in (1, 2, 5):
            x = noise(batch, 3, 4)
            want = np.concatenate([np.broadcast_to(np.maximum(token, 0), (batch, 1, 4)), x], 1)
            assert np.array_equal(run(spec, [x, token] if computed else x), want)

    def test_sizes_that_cannot_stay_free_are_fixed(self) -> None:
        """Every other row, by a list of indices as long as there are rows."""
        nodes = [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "two"], ["h"]),
            node("Range", ["zero", "h", "two"], ["r"]),
            node("Gather", ["x", "r"], ["y"], axis=2),
        ]
        stored = {"two": np.int64(2), "zero": np.int64(0)}
        proto = model(nodes, [value("x", ["n", 3, "h", "w"])], ["y"], stored)
        with pytest.warns(UserWarning, match="free sizes h are fixed"):
            spec = from_onnx(proto, shapes={"x": (1, 3, 4, 4)})
        assert spec.inputs[0].shape == ("N", 3, 4, "w")


class TestConstants:
    """Constants of every form, initialisers among the inputs, inputs built in."""

    @pytest.mark.parametrize(
        ("attribute", "want"),
        [
            ({"value": numpy_helper.from_array(noise(3))}, noise(3)),
            ({"value_float": 2.5}, np.float32(2.5)),
            ({"value_floats": [1.0, 2.0]}, np.array([1, 2], np.float32)),
            ({"value_int": 7}, np.int64(7)),
            ({"value_ints": [1, 2]}, i64(1, 2)),
            ({"value": numpy_helper.from_array(np.array([True, False]))}, np.array([True, False])),
        ],
    )
    def test_forms(self, attribute: Any, want: Any) -> None:
        got = run(from_onnx(one("Constant", of=[value("x", [1])], **attribute)), noise(1))
        assert got.dtype == want.dtype
        assert np.array_equal(got, want)

    def test_of_two_values(self) -> None:
        with pytest.raises(SpecError, match="gives 2 values"):
            from_onnx(one("Constant", value_int=1, value_float=1.0))

    def test_an_input_built_in(self) -> None:
        proto = one("Reshape", "x", "s", of=[value("x", ["n", 6]), value("s", [3], INT64)])
        with pytest.raises(UnsupportedError, match="Reshape: its shape is computed from the input s"):
            from_onnx(proto)
        spec = from_onnx(proto, constants={"s": i64(0, 2, 3)})
        assert [i.name for i in spec.inputs] == ["x"]
        assert run(spec, noise(5, 6)).shape == (5, 2, 3)

    def test_integers_run(self) -> None:
        spec = from_onnx(one("Add", "x", "c", of=[value("x", ["n", 2], INT64)], c=i64(1, 2)))
        assert np.array_equal(run(spec, i64(3, 4)[None]), i64(4, 6)[None])


class TestOpsets:
    """Operators that changed their meaning."""

    def test_softmax_before_13_is_over_all_axes_behind(self) -> None:
        x = noise(2, 3, 4)
        for opset, axes in ((12, (1, 2)), (13, (1,))):
            spec = from_onnx(one("Softmax", "x", of=[value("x", [2, 3, 4])], opset=opset, axis=1))
            e = np.exp(x.astype(np.float64))
            assert np.allclose(run(spec, x), e / e.sum(axes, keepdims=True), atol=1e-6)

    @pytest.mark.parametrize("opset", [9, 10, 11, 13])
    def test_axes_as_attribute_and_as_input(self, opset: int) -> None:
        stored = {"ax": i64(0), "st": i64(1), "en": i64(3), "sax": i64(1)}
        nodes = [
            node("Slice", ["x"], ["s"], starts=[1], ends=[3], axes=[1])
            if opset < 10
            else node("Slice", ["x", "st", "en", "sax"], ["s"])
        ]
        for op, x, y in (("Squeeze", "s", "q"), ("Unsqueeze", "q", "u"), ("ReduceSum", "u", "y")):
            nodes.append(node(op, [x], [y], axes=[0]) if opset < 13 else node(op, [x, "ax"], [y]))
        x = noise(1, 4, 3)
        got = run(from_onnx(model(nodes, [value("x", [1, 4, 3])], ["y"], stored, opset)), x)
        assert np.array_equal(got, x[:, 1:3])

    @pytest.mark.parametrize("opset", [10, 11, 13])
    def test_clip(self, opset: int) -> None:
        x, low, high = noise(3, 4), np.float32(-0.5), np.float32(0.25)
        old: dict[str, Any] = {"min": -0.5, "max": 0.25} if opset < 11 else {}
        reads = ("x",) if old else ("x", "low", "high")
        proto = one("Clip", *reads, of=[value("x", [3, 4])], opset=opset, low=low, high=high, **old)
        assert np.array_equal(run(from_onnx(proto), x), np.clip(x, low, high))


class TestBranches:
    """An If is what its condition says, where that is known."""

    def proto(self, condition: Any, *inputs: Any) -> Any:
        branches = {
            f"{name}_branch": helper.make_graph([node(op, ["x"], ["r"])], name, [], [value("r", None)])
            for name, op in (("then", "Relu"), ("else", "Neg"))
        }
        nodes = [*condition, node("If", ["c"], ["y"], **branches)]
        return model(nodes, [value("x", [3]), *inputs], ["y"])

    @pytest.mark.parametrize("truth", [True, False])
    def test_known(self, truth: bool) -> None:
        condition = node("Constant", [], ["c"], value=numpy_helper.from_array(np.array(truth)))
        (layer,) = from_onnx(self.proto([condition])).nodes
        assert layer.op == ("relu" if truth else "neg")

    def test_computed_from_an_input(self) -> None:
        with pytest.raises(UnsupportedError, match="If: its condition is computed from the input"):
            from_onnx(self.proto([], value("c", [], BOOL)))


def test_dead_nodes_are_left_out() -> None:
    """What no output needs is not looked at, even where it is unsupported."""
    nodes = [node("Relu", ["x"], ["y"]), node("Frobnicate", ["x"], ["z"])]
    assert [n.op for n in from_onnx(model(nodes, [value("x", [2])], ["y"])).nodes] == ["relu"]


def test_constants_are_folded() -> None:
    """What depends on no input becomes one parameter."""
    nodes = [
        node("Transpose", ["w"], ["t"]),
        node("Mul", ["t", "t"], ["m"]),
        node("MatMul", ["x", "m"], ["y"]),
    ]
    spec = from_onnx(model(nodes, [value("x", ["n", 3])], ["y"], {"w": noise(4, 3)}))
    assert [n.op for n in spec.nodes] == ["linear"]
    assert len(spec.params) == 1


def test_an_operator_without_a_builder_is_written_out() -> None:
    """MeanVarianceNormalization is a function of operators that there are builders for."""
    proto, x = one("MeanVarianceNormalization", "x"), noise(2, 3, 4, 4)
    assert np.allclose(run(from_onnx(proto), x), evaluated(proto, x)[0], atol=1e-5)


def test_outputs_that_are_inputs_and_constants() -> None:
    proto = model([node("Identity", ["x"], ["y"])], [value("x", [2])], ["y", "c", "x"], {"c": noise(3)})
    x = noise(2, seed=1)
    y, c, again = run(from_onnx(proto), x)
    assert np.array_equal(y, x)
    assert np.array_equal(c, noise(3))
    assert np.array_equal(again, x)


@pytest.mark.parametrize(
    "equation", ["nij,jk->nik", "nij,nkj->nik", "nij->nj", "nij,nij->ni", "...j,kj->...k"]
)
def test_einsum_keeps_the_batch_free(equation: str) -> None:
    second = {"nij,jk->nik": (4, 5), "...j,kj->...k": (5, 4)}.get(equation)
    stored = {"w": noise(*second)} if second else {}
    reads = ["x", *(stored or ["x"])][: 1 + ("," in equation)]
    spec = from_onnx(one("Einsum", *reads, of=[value("x", ["n", 3, 4])], equation=equation, **stored))
    for batch in (1, 3):
        x = noise(batch, 3, 4)
        operands = [{"x": x, **stored}[name] for name in reads]
        assert np.allclose(run(spec, x), np.einsum(equation, *operands), atol=1e-5)


def test_a_batch_that_another_input_gives_the_example_of() -> None:
    proto = one("Concat", "x", "z", of=[value("x", ["n", 3]), value("z", ["n", "w"])], axis=1)
    spec = from_onnx(proto, shapes={"z": (4, 3)})
    assert [i.example for i in spec.inputs] == [(4, 3), (4, 3)]
    assert [i.shape for i in spec.inputs] == [("N", 3), ("N", "w")]
