"""Small ONNX models of several makers and opsets: written by hand with onnx.helper, and exported by torch."""

import copy
import io
import warnings
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from support.noise import noise

onnx = pytest.importorskip("onnx")
helper, numpy_helper = onnx.helper, onnx.numpy_helper
FLOAT, INT64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL


def value(name: str, shape: Any, kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


IMAGES = [value("x", [2, 3, 4, 4])]


def model(
    nodes: Any, inputs: Any, outputs: Any, stored: dict[str, Any] | None = None, opset: int = 17,
    functions: Any = (), ir: int = 8, domains: Mapping[str, int] = MappingProxyType({}),
) -> Any:  # fmt: skip
    """A ModelProto; ``outputs`` are names. ``domains``: operator sets other than ONNX's, with versions."""
    initializers = [numpy_helper.from_array(np.asarray(a), k) for k, a in (stored or {}).items()]
    outs = [value(o, None) if isinstance(o, str) else o for o in outputs]
    graph = helper.make_graph(nodes, "small", inputs, outs, initializers)
    opsets = [helper.make_opsetid(d, version) for d, version in {"": opset, **domains}.items()]
    if functions:
        opsets.append(helper.make_opsetid("own", 1))
    made = helper.make_model(graph, opset_imports=opsets, functions=functions)
    made.ir_version = ir
    return made


def untyped(*names: str) -> list[Any]:
    """Outputs declared by name alone."""
    return [helper.make_empty_tensor_value_info(n) for n in names]


def inputs_like(feed: Mapping[str, Any], first: str | None = None) -> list[Any]:
    """Inputs declared with the shapes and types of arrays; ``first``: the name of an open first axis."""
    kind = helper.np_dtype_to_tensor_dtype
    shapes = {n: list(x.shape) if first is None else [first, *x.shape[1:]] for n, x in feed.items()}
    return [value(n, shapes[n], kind(x.dtype)) for n, x in feed.items()]


def one(op: str, *reads: str, of: Any = IMAGES, opset: int = 17, **given: Any) -> Any:
    """A model of one node "it" that makes y of the inputs ``of``; arrays in ``given`` are stored, the rest
    are attributes.
    """
    stored = {key: array for key, array in given.items() if isinstance(array, (np.ndarray, np.generic))}
    attrs = {key: content for key, content in given.items() if key not in stored}
    return model([helper.make_node(op, reads, ["y"], name="it", **attrs)], of, ["y"], stored, opset)


def image_net() -> Any:
    """Convolution, batch norm, residual, pooling, Gemm; opset 7, weights listed as inputs, batch open."""
    node = helper.make_node
    stored = {
        "w": noise(8, 3, 3, 3), "b": noise(8), "s": noise(8), "o": noise(8), "m": noise(8),
        "v": np.abs(noise(8)) + 0.5, "w2": noise(8, 1, 3, 3), "fc": noise(5, 8), "fb": noise(5),
    }  # fmt: skip
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], name="conv"),
        node("BatchNormalization", ["c", "s", "o", "m", "v"], ["n"], epsilon=1e-3),
        node("Relu", ["n"], ["r"]),
        node("Conv", ["r", "w2"], ["d"], auto_pad="SAME_UPPER", group=8, kernel_shape=[3, 3]),
        node("Add", ["d", "r"], ["a"]),
        node("MaxPool", ["a"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", ["p"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Dropout", ["f"], ["f2"], ratio=0.5),
        node("Gemm", ["f2", "fc", "fb"], ["y"], transB=1),
        node("Softmax", ["y"], ["z"]),
    ]
    inputs = [value("x", ["batch", 3, 8, 8]), *(value(k, a.shape) for k, a in stored.items())]
    return model(nodes, inputs, [value("z", ["batch", 5])], stored, opset=7, ir=3)


def tokens() -> Any:
    """Embedding, attention written out, shapes computed from shapes; int64 input, batch open."""
    node, i64 = helper.make_node, lambda *v: np.array(v, np.int64)
    stored = {
        "table": noise(11, 8), "wq": noise(8, 8), "wk": noise(8, 8), "two": i64(2), "four": i64(4),
        "zero": np.array(0, np.int64), "minus": i64(-1), "scale": np.float32(0.5), "axis0": i64(0),
        "one": i64(1),
    }  # fmt: skip
    nodes = [
        node("Gather", ["table", "ids"], ["e"]),
        node("Shape", ["ids"], ["sh"]),
        node("Gather", ["sh", "zero"], ["n"], axis=0),
        node("Unsqueeze", ["n", "axis0"], ["n1"]),
        node("Slice", ["sh", "one", "two", "axis0"], ["t1"]),
        node("Concat", ["n1", "t1", "two", "four"], ["heads"], axis=0),
        node("MatMul", ["e", "wq"], ["q0"]),
        node("MatMul", ["e", "wk"], ["k0"]),
        node("Reshape", ["q0", "heads"], ["q1"]),
        node("Reshape", ["k0", "heads"], ["k1"]),
        node("Transpose", ["q1"], ["q"], perm=[0, 2, 1, 3]),
        node("Transpose", ["k1"], ["k"], perm=[0, 2, 3, 1]),
        node("MatMul", ["q", "k"], ["qk"]),
        node("Mul", ["qk", "scale"], ["qks"]),
        node("Softmax", ["qks"], ["p"], axis=-1),
        node("MatMul", ["p", "q"], ["o"]),
        node("Transpose", ["o"], ["ot"], perm=[0, 2, 1, 3]),
        node("Concat", ["n1", "t1", "minus"], ["flat"], axis=0),
        node("Reshape", ["ot", "flat"], ["y"]),
    ]
    return model(nodes, [value("ids", ["n", 6], INT64)], ["y"], stored, opset=17)


def functions() -> Any:
    """A function of the model's own that calls another, an If on a constant, constants as nodes."""
    node = helper.make_node
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    inner = helper.make_function(
        "own", "Scaled", ["a"], ["b"],
        [_referring("Constant", [], ["c"], "value_float", "by", 1), node("Mul", ["a", "c"], ["b"])],
        opsets, ["by"],
    )  # fmt: skip
    outer = helper.make_function(
        "own", "Block", ["a", "w"], ["d"],
        [node("MatMul", ["a", "w"], ["b"]), node("Scaled", ["b"], ["c"], domain="own", by=0.25),
         node("Tanh", ["c"], ["d"])], opsets,
    )  # fmt: skip
    then = helper.make_graph([node("Relu", ["h"], ["t"])], "then", [], [value("t", None)])
    other = helper.make_graph([node("Sigmoid", ["h"], ["e"])], "else", [], [value("e", None)])
    nodes = [
        node("Block", ["x", "w"], ["h"], domain="own", name="block"),
        node("Constant", [], ["yes"], value=numpy_helper.from_array(np.array(True))),
        node("If", ["yes"], ["r"], then_branch=then, else_branch=other),
        node("Constant", [], ["pads"], value_ints=[0, 1, 0, 2]),
        node("Pad", ["r", "pads"], ["p"]),
        node("Split", ["p"], ["s1", "s2"], axis=1, num_outputs=2),
        node("Add", ["s1", "s2"], ["y"]),
    ]
    return model(nodes, [value("x", ["N", 7])], ["y"], {"w": noise(7, 9)}, 18, [inner, outer])


def loops() -> Any:
    """A Loop of a known number of steps with another inside, and a Scan of which the last state is taken."""
    node = helper.make_node
    inner = helper.make_graph(
        [node("Add", ["b", "a"], ["c"])], "inner",
        [value("j", [], INT64), value("on", [], BOOL), value("b", ["n", 5])],
        [value("on", [], BOOL), value("c", ["n", 5])],
    )  # fmt: skip
    outer = helper.make_graph(
        [node("MatMul", ["a", "w"], ["m"]), node("Loop", ["two", "", "m"], ["l"], body=inner),
         node("Tanh", ["l"], ["t"])], "outer",
        [value("i", [], INT64), value("going", [], BOOL), value("a", ["n", 5])],
        [value("going", [], BOOL), value("t", ["n", 5])],
    )  # fmt: skip
    step = helper.make_graph(
        [node("Mul", ["s", "r"], ["p"]), node("Add", ["p", "r"], ["q"])], "step",
        [value("s", ["n"]), value("r", ["n"])], [value("q", ["n"])],
    )  # fmt: skip
    nodes = [
        node("Loop", ["two", "yes", "x"], ["h"], body=outer, name="loop"),
        node("Transpose", ["h"], ["rows"], perm=[1, 0]),
        node("ReduceMax", ["h"], ["s0"], axes=[1], keepdims=0),
        node("Scan", ["s0", "rows"], ["y"], body=step, num_scan_inputs=1, name="scan"),
    ]
    stored = {"w": noise(5, 5), "two": np.int64(2), "yes": np.array(True)}
    return model(nodes, [value("x", ["n", 5])], ["y"], stored)


def _referring(op: str, inputs: Any, outputs: Any, attribute: str, to: str, kind: int) -> Any:
    """A node whose attribute is that of the function it is in."""
    made = helper.make_node(op, inputs, outputs)
    made.attribute.append(onnx.AttributeProto(name=attribute, ref_attr_name=to, type=kind))
    return made


def exported(module: Any, *inputs: Any, name: str = "x", batch: bool = True) -> bytes:
    """What torch's exporter of TorchScript makes of ``module`` in eval mode."""
    torch = pytest.importorskip("torch")
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(), inputs, file, dynamo=False, input_names=[name],
            dynamic_axes={name: {0: "batch"}} if batch else None,
        )  # fmt: skip
    return file.getvalue()


def exported_net() -> Any:
    """torch's export of a small network with shuffled channels, squeeze and excite, and a bilinear head."""
    torch = pytest.importorskip("torch")
    nn = torch.nn
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish())
            self.squeeze = nn.Sequential(
                nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 4, 1), nn.ReLU(), nn.Conv2d(4, 8, 1), nn.Hardsigmoid()
            )
            self.head = nn.Linear(8, 5)

        def forward(self, x: Any) -> Any:
            x = self.stem(x)
            x = x * self.squeeze(x)
            n, c, h, w = x.shape
            x = x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
            return self.head(torch.nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))

    return onnx.load_from_string(exported(Net(), torch.zeros(1, 3, 12, 12)))


def evaluated(proto: Any, *inputs: Any) -> list[Any]:
    """The outputs by onnx's reference evaluator, which has no batch norm of opset 7: 9 has the same."""
    from onnx.reference import ReferenceEvaluator

    proto = copy.deepcopy(proto)
    proto.opset_import[0].version = max(9, proto.opset_import[0].version)
    stored = {i.name for i in proto.graph.initializer}
    names = [i.name for i in proto.graph.input if i.name not in stored]
    return list(ReferenceEvaluator(proto).run(None, dict(zip(names, inputs, strict=True))))


SMALL: dict[str, Callable[[], Any]] = {
    "image_net": image_net,
    "tokens": tokens,
    "functions": functions,
    "loops": loops,
    "exported_net": exported_net,
}


def i64(*numbers: int) -> Any:
    """A vector of int64."""
    return np.array(numbers, np.int64)
