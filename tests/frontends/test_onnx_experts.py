"""onnxruntime's mixtures of experts: what it computes, in float32 and with weights of few bits."""

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import bslite  # noqa: E402
from bslite.errors import SpecError, UnsupportedError  # noqa: E402

H, INNER, EXPERTS = 32, 64, 5


def noise(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def mixed(kind: str, operands: list[str], constants: dict[str, Any], sizes: list[Any], **attrs: Any) -> bytes:
    """A model of one node; ``sizes``: of the rows."""
    node = helper.make_node(kind, ["x", "scores", *operands], ["y"], domain="com.microsoft", **attrs)
    ports = [
        helper.make_tensor_value_info(
            name, TensorProto.FLOAT, [*sizes[: 1 if name == "scores" else None], size]
        )
        for name, size in (("x", H), ("scores", EXPERTS), ("y", H))
    ]
    stored = [
        numpy_helper.from_array(np.ascontiguousarray(v), n) for n, v in constants.items() if n in operands
    ]
    graph = helper.make_graph([node], "experts", ports[:2], ports[2:], stored)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 10
    made: bytes = model.SerializeToString()
    return made


def compared(model: bytes, rows: int, most: float = 1e-6) -> None:
    """bslite's answer is onnxruntime's but for ``most`` of it."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    theirs = ort.InferenceSession(model, options)
    ours = bslite.compile(model)
    for count in (rows, 1, 40):
        given = {"x": noise(count, H), "scores": noise(count, EXPERTS)}
        (want,) = theirs.run(None, given)
        made = ours(given)[0]
        assert np.linalg.norm(made - want) <= most * np.linalg.norm(want)
    assert bslite.verify(ours, given).passed


def layers(activation: str) -> dict[str, Any]:
    inner = INNER * (1 + (activation == "swiglu"))
    return {
        "w1": noise(EXPERTS, inner, H), "b1": noise(EXPERTS, inner),
        "w2": noise(EXPERTS, H, INNER), "b2": noise(EXPERTS, H),
    }  # fmt: skip


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(
    ("activation", "attrs"),
    [
        ("relu", {"k": 1}), ("gelu", {"k": 2}), ("silu", {"k": 3, "normalize_routing_weights": 1}),
        ("swiglu", {"k": 2, "swiglu_fusion": 1}),
        ("swiglu", {
            "k": EXPERTS, "swiglu_fusion": 1, "activation_alpha": 1.702, "activation_beta": 1.0,
            "swiglu_limit": 0.5, "normalize_routing_weights": 1,
        }),
    ],
)  # fmt: skip
def test_experts(activation: str, attrs: dict[str, Any], biased: bool) -> None:
    operands = ["w1", "b1", "w2", "b2"] if biased else ["w1", "", "w2", ""]
    compared(mixed("MoE", operands, layers(activation), ["N"], activation_type=activation, **attrs), 7)


def codes(shape: tuple[int, ...], bits: int, packed: bool = True) -> Any:
    made = np.random.default_rng(sum(shape)).integers(0, 2**bits, shape)
    return np.uint8(made[..., ::2] | made[..., 1::2] << 4 if bits == 4 and packed else made)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(("bits", "block"), [(4, 0), (4, 16), (8, 0), (8, 16)])
def test_experts_of_few_bits(bits: int, block: int, zeros: bool) -> None:
    shapes = {"1": (EXPERTS, 2 * INNER, H), "2": (EXPERTS, H, INNER)}
    constants = layers("swiglu")
    for i, (count, rows, columns) in shapes.items():
        scales = (count, rows, columns // block) if block else (count, rows)
        constants[f"q{i}"] = codes((count, rows, columns), bits)
        constants[f"s{i}"] = np.random.default_rng(3).uniform(0.01, 0.1, scales).astype(np.float32)
        constants[f"z{i}"] = codes(scales, bits)
    operands = ["q1", "s1", "b1", "q2", "s2", "b2", *(["", "", "", "z1", "z2"] if zeros else [])]
    attrs = {"block_size": block} if block else {}
    model = mixed(
        "QMoE", operands, constants, ["N"], activation_type="swiglu", swiglu_fusion=1, k=2,
        expert_weight_bits=bits, **attrs,
    )  # fmt: skip
    compared(model, 6, 2e-2 if bits == 8 and block else 1e-6)  # there onnxruntime rounds rows to 8 bits


@pytest.mark.parametrize(
    ("attrs", "words"),
    [
        ({"activation_type": "tanh"}, "activation 'tanh'"), ({"use_sparse_mixer": 1}, "sparse mixer"),
        ({"activation_type": "swiglu", "swiglu_fusion": 2}, "interleaved"),
    ],
)  # fmt: skip
def test_what_it_lacks_is_said(attrs: dict[str, Any], words: str) -> None:
    model = mixed("MoE", ["w1", "b1", "w2", "b2"], layers("relu"), [4], **attrs)
    with pytest.raises(UnsupportedError, match=words):
        bslite.from_onnx(model)


def test_weights_that_do_not_fit() -> None:
    constants = layers("relu") | {"w1": noise(EXPERTS, INNER, H + 1)}
    with pytest.raises(SpecError, match=r"weights \[5, 64, 33\]"):
        bslite.from_onnx(mixed("MoE", ["w1", "b1", "w2", "b2"], constants, [4]))
