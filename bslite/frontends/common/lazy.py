"""Imports of the optional packages, which happen only when a model is converted."""

from typing import Any

from bslite.errors import EngineError


def load_torch() -> Any:
    """The module ``torch`` with ``torch.export``; EngineError saying how to install it if there is none."""
    try:
        import torch
        import torch.export
    except ImportError as e:
        raise _missing("taking models from torch needs PyTorch 2.4", "torch", e) from e
    return torch


def load_onnx() -> Any:
    """The module ``onnx``; EngineError saying how to install it if there is none."""
    try:
        import onnx
        import onnx.defs
        import onnx.helper
    except ImportError as e:
        raise _missing("from_onnx needs the package onnx 1.16", "onnx", e) from e
    return onnx


def _missing(what: str, extra: str, error: ImportError) -> EngineError:
    return EngineError(
        f"{what} or newer ({error}): pip install 'bslite[{extra}]'. A model saved by bslite runs without it."
    )
