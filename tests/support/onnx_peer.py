"""ONNX models by bslite and by onnxruntime, which is asked for by the tests that use this."""

from typing import Any

import pytest

import bslite
from support.check import assert_three_way, rel_l2

ort = pytest.importorskip("onnxruntime")
ALIKE = 1e-5  # relative L2 within which onnxruntime computes what the reference computes


def agree(made: Any, feed: dict[str, Any]) -> bslite.CompiledModel:
    """Each output by both, of one type and shape, held to the reference in float64 by the three-way rule."""
    data = made.SerializeToString()
    compiled, exact = bslite.compile(data), bslite.compile(data, device="reference64")
    wants = ort.InferenceSession(data).run(None, feed)
    for ours, theirs, truth in zip(compiled(feed).tuple(), wants, exact(feed).tuple(), strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        assert_three_way(ours, theirs, truth)
        assert rel_l2(theirs, truth) <= ALIKE
    return compiled
