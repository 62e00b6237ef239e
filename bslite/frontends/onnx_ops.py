"""The one table from ONNX operators to builder functions.

To support another operator, add a builder to the file of its family.
"""

from __future__ import annotations

from bslite.frontends import (
    onnx_activations,
    onnx_arith,
    onnx_attention,
    onnx_indexing,
    onnx_layers,
    onnx_moves,
    onnx_recurrent,
    onnx_reduce,
    onnx_repeat,
    onnx_resize,
    onnx_sampling,
    onnx_shapes,
    onnx_slices,
    onnx_windows,
)
from bslite.frontends.onnx_context import TABLE, find

__all__ = [
    "TABLE",
    "find",
    "onnx_activations",
    "onnx_arith",
    "onnx_attention",
    "onnx_indexing",
    "onnx_layers",
    "onnx_moves",
    "onnx_recurrent",
    "onnx_reduce",
    "onnx_repeat",
    "onnx_resize",
    "onnx_sampling",
    "onnx_shapes",
    "onnx_slices",
    "onnx_windows",
]
