"""onnxruntime's mixtures of experts, in float32 and with weights of few bits: what NumPy makes of their
definition, and what onnxruntime computes, where it is installed.
"""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper

import bslite
from bslite.errors import SpecError, UnsupportedError

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


def expected(
    given: dict[str, Any], layers: dict[str, Any], k: int, activation: str, how: dict[str, Any]
) -> Any:
    """Row by row, in float64."""
    made = []
    for x, scores in zip(given["x"].astype(np.float64), given["scores"].astype(np.float64), strict=True):
        share = np.exp(scores - scores.max())
        chosen = np.argsort(-share, kind="stable")[:k]
        share /= share[chosen].sum() if how.get("normalize_routing_weights") else share.sum()
        made.append(
            sum(
                share[e] * expert(x, [layers[n][e] for n in ("w1", "b1", "w2", "b2")], activation, how)
                for e in chosen
            )
        )
    return np.array(made)


def expert(x: Any, layer: list[Any], activation: str, how: dict[str, Any]) -> Any:
    w1, b1, w2, b2 = layer
    y = w1 @ x + b1
    if activation == "swiglu":
        limit = how.get("swiglu_limit", np.inf)
        gate, value = np.minimum(y[::2], limit), np.clip(y[1::2], -limit, limit)
        gate = gate / (1 + np.exp(-how.get("activation_alpha", 1.0) * gate))
        return w2 @ (gate * (value + how.get("activation_beta", 0.0))) + b2
    functions = {
        "relu": lambda v: np.maximum(v, 0),
        "silu": lambda v: v / (1 + np.exp(-v)),
        "gelu": lambda v: v / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (v + 0.044715 * v**3))),
    }
    return w2 @ functions[activation](y) + b2


def compared(
    model: bytes, rows: int, layers: dict[str, Any], activation: str, how: dict[str, Any], most: float = 1e-6
) -> None:
    """bslite's answer is NumPy's but for rounding, and onnxruntime's but for ``most`` of it."""
    ours = bslite.compile(model)
    for count in (rows, 1, 40):
        given = {"x": noise(count, H), "scores": noise(count, EXPERTS)}
        made = ours(given)[0]
        want = expected(given, layers, how["k"], activation, how)
        assert np.linalg.norm(made - want) <= 1e-6 * np.linalg.norm(want)
    assert bslite.verify(ours, given).passed
    try:
        import onnxruntime as ort
    except ImportError:
        return
    options = ort.SessionOptions()
    options.log_severity_level = 3
    (theirs,) = ort.InferenceSession(model, options).run(None, given)
    assert np.linalg.norm(made - theirs) <= most * np.linalg.norm(theirs)


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
    operands, own = ["w1", "b1", "w2", "b2"] if biased else ["w1", "", "w2", ""], layers(activation)
    model = mixed("MoE", operands, own, ["N"], activation_type=activation, **attrs)
    compared(model, 7, own if biased else own | {n: 0 * own[n] for n in ("b1", "b2")}, activation, attrs)


def packed(numbers: Any, bits: int) -> Any:
    return np.uint8(numbers[..., ::2] | numbers[..., 1::2] << 4 if bits == 4 else numbers)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(("bits", "block"), [(4, 0), (4, 16), (8, 0), (8, 16)])
def test_experts_of_few_bits(bits: int, block: int, zeros: bool) -> None:
    drawn, constants, own = np.random.default_rng(0), layers("swiglu"), layers("swiglu")
    for i, (rows, columns) in {"1": (2 * INNER, H), "2": (H, INNER)}.items():
        blocks = columns // block if block else 1
        numbers = drawn.integers(0, 2**bits, (EXPERTS, rows, columns))
        scale = drawn.uniform(0.01, 0.1, (EXPERTS, rows, blocks)).astype(np.float32)
        zero = drawn.integers(0, 2**bits, scale.shape) if zeros else np.full(scale.shape, 2 ** (bits - 1))
        own[f"w{i}"] = (numbers - zero.repeat(columns // blocks, 2)) * scale.repeat(columns // blocks, 2)
        constants[f"q{i}"] = packed(numbers, bits)
        constants[f"s{i}"] = scale if block else scale[..., 0]
        constants[f"z{i}"] = packed(zero if block else zero[..., 0], bits)
    operands = ["q1", "s1", "b1", "q2", "s2", "b2", *(["", "", "", "z1", "z2"] if zeros else [])]
    how = {"k": 2, "swiglu_fusion": 1, "expert_weight_bits": bits, **({"block_size": block} if block else {})}
    model = mixed("QMoE", operands, constants, ["N"], activation_type="swiglu", **how)
    most = 2e-2 if bits == 8 and block else 1e-6  # there onnxruntime rounds rows to 8 bits
    compared(model, 6, own, "swiglu", how | {"normalize_routing_weights": 1}, most)


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
