"""onnxruntime's own attention operators, against onnxruntime."""

from typing import Any

import numpy as np
import pytest
from support.noise import noise
from support.onnx_models import helper, inputs_like, model, onnx, value
from support.onnx_peer import agree

import bslite
from bslite.errors import SpecError

N, L, HEADS, WIDTH = 2, 5, 3, 12
INT32 = onnx.TensorProto.INT32


def heads(
    op: str, reads: list[str], makes: list[str], stored: dict[str, Any], feed: dict[str, Any], **given: Any
) -> None:  # fmt: skip
    """The node's results by both, with the batch left open."""
    node = helper.make_node(op, reads, makes, domain="com.microsoft", num_heads=HEADS, **given)
    outs = [o for o in makes if o]
    agree(model([node], inputs_like(feed, "n"), outs, stored, domains={"com.microsoft": 1}), feed)


MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)


@pytest.mark.parametrize("sizes", [None, [12, 12, 6]])
@pytest.mark.parametrize("mask", [None, MASK, np.tril(np.ones((N, L, L), np.int32))])
@pytest.mark.parametrize("unidirectional", [0, 1])
def test_attention(sizes: list[int] | None, mask: Any, unidirectional: int) -> None:
    width = sum(sizes or [WIDTH] * 3)
    stored = {"w": noise(WIDTH, width), "b": noise(width)}
    feed = {"x": noise(N, L, WIDTH)} | ({} if mask is None else {"m": mask})
    reads = ["x", "w", "b", *(["m"] if mask is not None else [])]
    given = {} if sizes is None else {"qkv_hidden_sizes": sizes}
    heads("Attention", reads, ["y"], stored, feed, unidirectional=unidirectional, **given)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mask", [None, MASK])
def test_multi_head_attention(bias: bool, mask: Any) -> None:
    stored = {"b": noise(3 * WIDTH)} if bias else {}
    feed = {name: noise(N, L, WIDTH) for name in "qkv"} | ({} if mask is None else {"m": mask})
    reads = ["q", "k", "v", "b" if bias else "", "m" if mask is not None else ""]
    heads("MultiHeadAttention", reads, ["y"], stored, feed, scale=0.25)


@pytest.mark.parametrize("unidirectional", [0, 1])
def test_multi_head_attention_with_a_past(unidirectional: int) -> None:
    feed = {name: noise(N, L, WIDTH) for name in "qkv"}
    feed |= {name: noise(N, HEADS, 4, WIDTH // HEADS) for name in ("pk", "pv")}
    reads = ["q", "k", "v", "", "", "", "pk", "pv"]
    heads("MultiHeadAttention", reads, ["y", "k2", "v2"], {}, feed, unidirectional=unidirectional)


def lengths_of(op: str, lengths: Any, length: Any = L, given: Any = "n", **attrs: Any) -> Any:
    """A session's model and feed of ``op`` with the mask ``lengths``, of which the file says ``given``."""
    reads, stored = ["x", "w", "b", "m"], {"w": noise(WIDTH, 3 * WIDTH), "b": noise(3 * WIDTH)}
    if op == "MultiHeadAttention":
        reads, stored = ["x", "x", "x", "", "m"], {}
    node = helper.make_node(op, reads, ["y"], domain="com.microsoft", num_heads=HEADS, **attrs)
    inputs = [value("x", ["n", length, WIDTH]), value("m", [given], INT32)]
    made = model([node], inputs, ["y"], stored, domains={"com.microsoft": 1})
    return made, {"x": noise(N, L, WIDTH), "m": np.array(lengths, np.int32)}


@pytest.mark.parametrize("op", ["Attention", "MultiHeadAttention"])
@pytest.mark.parametrize("length", [L, "length"])
@pytest.mark.parametrize("hidden", [-10000.0, -30.0])
def test_how_many_keys_each_row_sees(op: str, length: Any, hidden: float) -> None:
    made, feed = lengths_of(op, [3, 5], length, mask_filter_value=hidden)
    compiled = agree(made, feed)
    assert isinstance(bslite.from_onnx(made), bslite.ModelSpec)  # all sizes are free
    assert len(compiled.pieces) == 1
    if hidden > -100:  # a row that sees none: its scores lose no digits
        agree(made, feed | {"m": np.array([0, 5], np.int32)})


@pytest.mark.parametrize("length", [L, "length"])
def test_from_which_key_to_which_each_row_sees(length: Any) -> None:
    agree(*lengths_of("Attention", [3, 5, 1, 0], length, given="of the mask"))
    agree(*lengths_of("Attention", [3, 5, 1, 0], length, given="of the mask", unidirectional=1))
    made, feed = lengths_of("Attention", [3, 5, 1, 2])
    made.graph.node.insert(0, helper.make_node("Concat", ["ends", "starts"], ["m"], axis=0))
    made.graph.input[1].CopyFrom(value("ends", ["n"], INT32))
    made.graph.input.append(value("starts", ["n"], INT32))
    ends, starts = np.split(feed.pop("m"), 2)
    agree(made, feed | {"ends": ends, "starts": starts})
    assert isinstance(bslite.from_onnx(made), bslite.ModelSpec)


@pytest.mark.parametrize("op", ["Attention", "MultiHeadAttention"])
def test_lengths_with_sums_of_lengths(op: str) -> None:
    agree(*lengths_of(op, [3, 5, 0, 3, 8, 0, 3, 8], given="of the mask"))
    made, feed = lengths_of(op, [3, 5, 0], given="of the mask")
    with pytest.raises(SpecError, match=r"its mask is \[3\] for 2 sequences"):
        bslite.compile(made)(feed)


@pytest.mark.parametrize("unidirectional", [0, 1])
@pytest.mark.parametrize("mask", [None, "keys", "rows", "lengths"])
def test_attention_with_a_past_in_one_tensor(unidirectional: int, mask: str | None) -> None:
    """Each row sees the past, and of the new keys those up to its own; the present is both."""
    stored = {"w": noise(WIDTH, 3 * WIDTH), "b": noise(3 * WIDTH)}
    held = 4
    masks = {
        "keys": np.tile(np.array([0, 1, 1, 1, 1, 1, 1, 1, 0], np.int32), (N, 1)),
        "rows": np.tril(np.ones((N, L, held + L), np.int32), held - 1),
        "lengths": np.array([held + L, held + 2], np.int32),
    }
    feed = {"x": noise(N, L, WIDTH), "past": noise(2, N, HEADS, held, WIDTH // HEADS)}
    if mask:
        feed["m"] = masks[mask]
    node = helper.make_node(
        "Attention", ["x", "w", "b", "m" if mask else "", "past"], ["y", "present"], domain="com.microsoft",
        num_heads=HEADS, unidirectional=unidirectional,
    )  # fmt: skip
    agree(model([node], inputs_like(feed), ["y", "present"], stored, domains={"com.microsoft": 1}), feed)
    del feed["past"]
    if mask is None:
        heads("Attention", ["x", "w", "b"], ["y", "present"], stored, feed, unidirectional=unidirectional)
