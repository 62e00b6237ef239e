"""The one place of the ONNX frontend that imports onnx, and only when a model is read."""

from __future__ import annotations

from typing import Any

from bslite.errors import EngineError


def load_onnx() -> Any:
    """The module ``onnx``; EngineError saying how to install it if there is none."""
    try:
        import onnx
        import onnx.defs
        import onnx.helper
    except ImportError as e:
        raise EngineError(
            f"from_onnx needs the package onnx 1.16 or newer ({e}): pip install 'bslite[onnx]'. "
            "A model saved by bslite runs without it."
        ) from e
    return onnx


def load_backend_base() -> Any:
    """The module ``onnx.backend.base``: what ONNX expects of a backend."""
    load_onnx()
    import onnx.backend.base

    return onnx.backend.base
