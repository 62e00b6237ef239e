"""onnxruntime's own attention operators, against onnxruntime."""

from typing import Any

import numpy as np
import pytest
from support.noise import noise
from support.onnx_models import helper, inputs_like, model
from support.onnx_peer import agree

N, L, HEADS, WIDTH = 2, 5, 3, 12


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


def test_multi_head_attention_with_a_past() -> None:
    feed = {name: noise(N, L, WIDTH) for name in "qkv"}
    feed |= {name: noise(N, HEADS, 4, WIDTH // HEADS) for name in ("pk", "pv")}
    reads = ["q", "k", "v", "", "", "", "pk", "pv"]
    heads("MultiHeadAttention", reads, ["y", "k2", "v2"], {}, feed)
