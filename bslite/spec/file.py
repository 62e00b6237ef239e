"""One safetensors file per model: the parameters as tensors, the graph as JSON in the metadata."""

from __future__ import annotations

from typing import Any

from bslite.spec.graph import ModelSpec


def save(spec: ModelSpec, path: Any) -> None:
    """Write ``spec`` to ``path``."""
    raise RuntimeError("not written yet")


def load(path: Any) -> ModelSpec:
    """Read a model written by `save`."""
    raise RuntimeError("not written yet")
