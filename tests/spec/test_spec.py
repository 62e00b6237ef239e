"""ModelSpec: what is wrong with a model is said when it is made, with the layer's name."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import bslite
from bslite.errors import InputError, SpecError
from bslite.spec import GraphBuilder, Input, ModelSpec, Node
from bslite.spec.table import LayerRow, layer_rows, layer_table

X = Input("x", ("N", 3, "H", "W"), (1, 3, 8, 8))
RELU = Node("act", "relu", ("x",))


def conv(name: str = "conv", source: str = "x", **attrs: Any) -> Node:
    return Node(name, "conv2d", (source,), {"weight": f"{name}.weight"}, attrs)


def weight(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=dtype).reshape(shape)


def model(
    *nodes: Node, outputs: tuple[str, ...] = (), inputs: tuple[Input, ...] = (X,), **params: Any
) -> ModelSpec:
    named = {key.replace("__", "."): value for key, value in params.items()}
    return ModelSpec("tiny", inputs, nodes, outputs or (nodes[-1].name,), named)


def small() -> ModelSpec:
    return model(conv(padding=1), Node("act", "relu", ("conv",)), conv__weight=weight(4, 3, 3, 3))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: model(RELU, inputs=()), "model 'tiny' has no input"),
        (lambda: ModelSpec("tiny", (X,), (RELU,), (), {}), "model 'tiny' has no output"),
        (lambda: model(RELU, outputs=("nobody",)), "output 'nobody' is not a layer of the model"),
        (lambda: model(Node("", "relu", ("x",)), outputs=("x",)), "has an empty name"),
        (lambda: model(RELU, RELU), "the name 'act' is used twice"),
        (lambda: model(Node("x", "relu", ("x",))), "the name 'x' is used twice"),
        (lambda: model(Node("a", "relu", ("b",)), Node("b", "relu", ("a",))), "layer 'a' reads 'b'"),
        (lambda: model(Node("a", "relu", ("a",))), "layer 'a' reads 'a'"),
        (lambda: Node("a", "rellu", ("x",)), "layer 'a': unknown op 'rellu'; did you mean .*'relu'"),
        (
            lambda: Node("a", "relu", ("x",), {}, {"slope": 1}),
            "layer 'a': op 'relu' has no attribute 'slope'",
        ),
        (lambda: Node("a", "concat", ("x",)), "layer 'a': op 'concat' needs attribute 'axis'"),
        (lambda: conv(stride="2"), "layer 'conv': op 'conv2d': attribute stride='2'"),
        (lambda: conv(groups=0), "layer 'conv': op 'conv2d': attribute groups=0: must be at least 1"),
        (lambda: conv(stride=1.5), r"layer 'conv': op 'conv2d': attribute stride=1\.5"),
        (lambda: model(Node("a", "relu", ("x", "x"))), r"layer 'a': op 'relu' takes 1 input\(s\), got 2"),
        (lambda: model(Node("a", "add", ("x",))), r"layer 'a': op 'add' takes 2 input\(s\), got 1"),
        (lambda: model(Node("a", "conv2d", ("x",))), "layer 'a': op 'conv2d' needs parameter 'weight'"),
        (
            lambda: model(Node("a", "relu", ("x",), {"weight": "w"}), w=weight(1)),
            "layer 'a': op 'relu' has no parameter 'weight'",
        ),
        (
            lambda: model(conv()),
            "layer 'conv': parameter 'weight' is 'conv.weight', which the model does not",
        ),
        (
            lambda: model(conv(), conv__weight=[1.0]),
            "parameter 'conv.weight' is a list, expected a numpy array",
        ),
        (
            lambda: model(conv(), conv__weight=weight(4, 3, 3, 3, dtype=np.float64)),
            "parameter 'conv.weight' is float64, expected float32",
        ),
        (lambda: model(conv(), conv__weight=weight(4, 2, 3, 3)), r"layer 'conv'.*3 channels.*\[4, 2, 3, 3\]"),
        (lambda: model(conv(), conv__weight=weight(4, 3, 9, 9)), "layer 'conv'.*too small"),
        (lambda: Input("x", ("N", 3, "H", "W")), "input 'x': give an example shape for the free sizes H, W"),
        (lambda: Input("x", (0, 3)), "input 'x': size 0"),
        (lambda: Input("x", (1.5,)), r"input 'x': size 1\.5"),
        (lambda: Input("x", (1,), dtype="float64"), "input 'x': dtype 'float64'"),
        (lambda: Input("x", 4), "input 'x': the shape: 4, expected a tuple"),
        (lambda: Input("x", ("N", 4), (2.0, 4)), r"input 'x': the example is \(2\.0, 4\), expected sizes"),
        (lambda: Input("x", ("N", 4), (2**70, 4)), "input 'x': example .*, expected at most"),
        (lambda: Node("a", "relu", "x"), "layer 'a': inputs: 'x', expected a tuple"),
        (lambda: Node("a", "relu", ("x",), attrs=[]), r"layer 'a': attrs is \[\], expected Mapping"),
        (lambda: Node(3, "relu", ("x",)), "a layer's name is 3, expected str"),
        (
            lambda: model(conv(), conv__weight=weight(4, 3, 3, 3, dtype=np.dtype(">f4"))),
            "parameter 'conv.weight' is >f4, expected float32",  # whose bytes a kernel would take as they lie
        ),
        (
            lambda: model(conv(), conv__weight=np.ma.array(weight(4, 3, 3, 3))),
            "parameter 'conv.weight' is a MaskedArray",
        ),
        (lambda: model(Node("a", "relu", ("x",))).replace(labels=(3,)), "each of its labels is 3"),
        (lambda: model(Node("a", "relu", ("x",))).replace(nodes=(None,)), "each of its nodes is None"),
        (lambda: model(Node("a", "relu", ("x",))).replace(outputs="a"), "outputs: 'a', expected a tuple"),
        (
            lambda: model(Node("a", "relu", ("x",))).replace(outputs=("a", "x"), labels=("l", "l")),
            "outputs 'a' and 'x' have one label, 'l'",
        ),
    ],
)
def test_construction_errors_name_the_layer(make: Any, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        make()


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ([], r"takes 1 input\(s\), got 0"),
        ([(1, 3, 8)], r"input 'x': got rank 3 \[1, 3, 8\], expected \[N, 3, H, W\]"),
        ([(1, 4, 8, 8)], r"input 'x': got \[1, 4, 8, 8\], expected \[N, 3, H, W\]; axis 1 is 4, should be 3"),
        ([(1, 3, 0, 8)], "input 'x': size 0 at axis 2"),
    ],
)
def test_input_errors(shapes: list[tuple[int, ...]], words: str) -> None:
    with pytest.raises(InputError, match=words):
        small().infer_shapes(shapes)


def test_one_free_size_in_two_inputs_must_agree() -> None:
    y = Input("y", ("N", 3, "H", "W"), (1, 3, 8, 8))
    spec = model(Node("sum", "add", ("x", "y")), inputs=(X, y))
    assert spec.infer_shapes([(2, 3, 4, 5), (2, 3, 4, 5)])["sum"] == (2, 3, 4, 5)
    with pytest.raises(InputError, match=r"input 'y'.*axis 3 is 6, should be 5"):
        spec.infer_shapes([(2, 3, 4, 5), (2, 3, 4, 6)])


def test_an_image_too_small_for_a_layer_names_the_layer() -> None:
    spec = model(conv(), conv__weight=weight(4, 3, 3, 3))
    assert spec.infer_shapes([(5, 3, 3, 9)])["conv"] == (5, 4, 1, 7)
    with pytest.raises(SpecError, match=r"layer 'conv'.*too small"):
        spec.infer_shapes([(1, 3, 2, 9)])


def test_spec_is_read_only() -> None:
    spec = small()
    with pytest.raises(AttributeError):
        spec.name = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        spec.params["conv.weight"] = weight(1)  # type: ignore[index]
    with pytest.raises(TypeError):
        spec.nodes[0].attrs["stride"] = (2, 2)  # type: ignore[index]


def test_replace_validates_again() -> None:
    spec = small()
    assert spec.replace(outputs=("conv",)).outputs == ("conv",)
    with pytest.raises(SpecError, match="output 'gone'"):
        spec.replace(outputs=("gone",))


def test_attributes_are_stored_in_one_form() -> None:
    assert conv(stride=2, padding=(1, 2)) == conv(stride=[2, 2], padding=(1, 2, 1, 2))
    assert conv().attrs["stride"] == (1, 1)


def test_builder_makes_names_unique() -> None:
    graph = GraphBuilder("twice")
    x = graph.input("x", ("N", 4))
    names = [graph.add("relu", "act", x) for _ in range(3)]
    assert names == ["act", "act#2", "act#3"]
    assert graph.add("relu", "x", x) == "x#2"
    assert [n.name for n in graph.build(*names).nodes] == ["act", "act#2", "act#3", "x#2"]


def test_node_survives_pickling() -> None:
    node = conv(stride=2)
    assert pickle.loads(pickle.dumps(node)) == node


def test_rows_count_shapes_parameters_flops_and_bytes() -> None:
    spec = small()
    assert layer_rows(spec) == [
        LayerRow("conv", "conv2d", ("x",), (1, 4, 8, 8), 108, 2 * 108 * 64, 4 * (192 + 108 + 256)),
        LayerRow("act", "relu", ("conv",), (1, 4, 8, 8), 0, 256, 4 * (256 + 256)),
    ]
    assert layer_rows(spec, [(2, 3, 5, 8)])[0].shape == (2, 4, 5, 8)


def test_table_prints_aligned_with_totals() -> None:
    spec = small()
    lines = layer_table(spec).splitlines()
    assert lines[0] == "tiny: 2 layers, input x [1, 3, 8, 8]"
    assert lines[1].split() == ["layer", "op", "output", "params", "MFLOP", "MB"]
    assert lines[3].split() == ["conv", "conv2d", "[1,", "4,", "8,", "8]", "108", "0.01", "0.00"]
    assert lines[-1].split() == ["total", "108", "0.01", "0.00"]
    assert len({len(line) for line in lines[1:]}) == 1
    assert str(spec) == layer_table(spec)
    assert "x [4, 3, 8, 8]" in layer_table(spec, [(4, 3, 8, 8)])


def test_table_counts_a_shared_parameter_once() -> None:
    first = Node("a", "conv2d", ("x",), {"weight": "w"}, {"padding": 1})
    again = Node("b", "conv2d", ("a",), {"weight": "w"}, {"padding": 1})
    spec = model(first, again, w=weight(3, 3, 3, 3), unused=weight(1000))
    assert [row.parameters for row in layer_rows(spec)] == [81, 81]
    assert layer_table(spec).splitlines()[-1].split()[1] == "81"


def test_table_of_a_model_without_layers() -> None:
    spec = ModelSpec("nothing", (X,), (), ("x",), {})
    assert layer_rows(spec) == []
    assert "nothing: 0 layers" in layer_table(spec)


def test_a_model_is_pickled_and_copied_without_what_engines_keep_on_it() -> None:
    spec = small()
    x = np.ones((1, 3, 8, 8), np.float32)
    want = bslite.run(spec, x)
    for copied in (pickle.loads(pickle.dumps(spec)), copy.deepcopy(spec), copy.copy(spec)):
        assert "_cpu_engine" not in copied.__dict__
        assert copied.nodes == spec.nodes
        np.testing.assert_array_equal(bslite.run(copied, x), want)


def test_parameters_cannot_be_written_through_the_model() -> None:
    array = weight(4, 3, 3, 3)
    spec = model(conv(padding=1), conv__weight=array)
    with pytest.raises(ValueError, match="read-only"):
        spec.params["conv.weight"][0] = 0
    array[0] = 1  # the caller's own array stays writable


def test_sizes_of_an_example_may_be_numpys() -> None:
    made = Input("x", ("N", 3), (np.int64(2), 3))
    assert made.example == (2, 3)
    assert type(made.example[0]) is int
