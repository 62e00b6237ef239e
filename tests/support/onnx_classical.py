"""Models of ai.onnx.ml, and the comparison with onnxruntime."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import bslite
from support.onnx_models import helper, numpy_helper, value

ort = pytest.importorskip("onnxruntime")
FEATURES = 4
ROWS = [value("x", ["n", FEATURES])]


def ml(
    nodes: Sequence[Any], inputs: Any, outputs: Sequence[str], version: int = 3,
    holds: Mapping[str, Any] = MappingProxyType({}),
) -> bytes:  # fmt: skip
    """A model whose nodes are of ai.onnx.ml if they do not say otherwise. ``holds``: initialisers."""
    outs = [helper.make_empty_tensor_value_info(o) for o in outputs]
    held = [numpy_helper.from_array(x, name) for name, x in holds.items()]
    graph = helper.make_graph(list(nodes), "classical", inputs, outs, held)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", version)]
    made: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return made


def node(op: str, reads: Sequence[str], makes: Sequence[str], **given: Any) -> Any:
    return helper.make_node(op, reads, makes, domain="ai.onnx.ml", **given)


def agree(made: bytes, **feed: Any) -> bslite.CompiledModel:
    """Values by bslite and onnxruntime, of the same types."""
    compiled = bslite.compile(made)
    for got, want in zip(compiled(feed).tuple(), ort.InferenceSession(made).run(None, feed), strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        if want.dtype.kind == "f":
            np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-6)
        else:
            assert got.tolist() == want.tolist()
    return compiled
