"""The one place of the torch frontend that imports torch, and only when a model is converted."""

from __future__ import annotations

from typing import Any

from bslite.errors import EngineError


def load_torch() -> Any:
    """The module ``torch`` with ``torch.export``; EngineError saying how to install it if there is none."""
    try:
        import torch
        import torch.export
    except ImportError as e:
        raise EngineError(
            f"taking models from torch needs PyTorch 2.4 or newer ({e}): pip install 'bslite[torch]'. "
            "A model saved by bslite runs without it."
        ) from e
    return torch
