"""Initialisers that a caller may give: those that a file lists as inputs, too."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from bslite.frontends.common.lazy import load_onnx
from bslite.frontends.onnx.file import Source

LEAST_IR = 4  # before, every initialiser had to be listed


def overridable(source: Source) -> list[Any]:
    """The inputs of the file that have a default."""
    graph = source.model.graph
    stored = {t.name for t in graph.initializer}
    return [v for v in graph.input if v.name in stored] if source.model.ir_version >= LEAST_IR else []


def without_defaults(source: Source, names: Collection[str]) -> Source:
    """The same model with these initialisers as inputs, after the others."""
    model = load_onnx().ModelProto()
    model.CopyFrom(source.model)
    graph = model.graph
    for i in reversed(range(len(graph.initializer))):
        if graph.initializer[i].name in names:
            del graph.initializer[i]
    given = [v for v in source.model.graph.input if v.name in names]
    for i in reversed(range(len(graph.input))):
        if graph.input[i].name in names:
            del graph.input[i]
    graph.input.extend(given)
    return replace(source, model=model)
