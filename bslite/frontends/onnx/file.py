"""An ONNX model from a path, bytes or a ModelProto, parsed and checked as a whole."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bslite.errors import FileError, InputError, SpecError, UnsupportedError
from bslite.frontends.common.lazy import load_onnx
from bslite.frontends.onnx.memo import Memo
from bslite.frontends.onnx.sorting import sorted_nodes
from bslite.frontends.onnx.values import Const

LEAST_OPSET = 1
MAX_NODES = 50_000  # in a graph with all its functions written out


@dataclass(frozen=True)
class Source:
    """A parsed model: the proto, where its external data may lie, and its versions of the operator sets.

    ``stored``: constants that its graph reads and does not hold, those of a graph around it. ``prefix``: what
    its nodes' names begin with.
    """

    model: Any
    folder: Path | None
    name: str
    opsets: dict[str, int]
    memo: Memo = field(default_factory=Memo, repr=False, compare=False)
    stored: Mapping[str, Const] = field(default_factory=dict)
    prefix: str = ""


def read_model(given: Any) -> Source:
    """The model that a path, bytes or a ModelProto holds. FileError if it cannot be read or parsed."""
    onnx = load_onnx()
    if isinstance(given, Source):
        return given
    folder: Path | None = None
    if isinstance(given, onnx.ModelProto):
        model, name = given, "model"
    elif isinstance(given, (bytes, bytearray, memoryview)):
        model, name = parse(bytes(given), "the bytes given"), "model"
    elif isinstance(given, (str, os.PathLike)):
        path = Path(given)
        if path.exists() and not path.is_file():  # a pipe may never end
            raise FileError(f"{path}: not a regular file")
        try:
            data = path.read_bytes()
        except (OSError, ValueError) as e:
            raise FileError(f"{path}: cannot read ({getattr(e, 'strerror', None) or e})") from e
        model, name, folder = parse(data, str(path)), path.stem, path.parent
    else:
        raise InputError(f"from_onnx takes a path, bytes or an onnx.ModelProto, got {type(given).__name__}")
    return Source(sorted_nodes(model), folder, model.graph.name or name, opsets(model))


def parse(data: bytes, what: str) -> Any:
    """The ModelProto in ``data``."""
    model = load_onnx().ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as e:  # of protobuf, whose module has no types
        raise FileError(f"{what}: not an ONNX model, or damaged ({e})") from None
    if not model.HasField("graph") or not model.graph.output:
        raise FileError(f"{what}: not an ONNX model, or damaged: it holds no graph with outputs")
    return model


def opsets(model: Any) -> dict[str, int]:
    """Domain -> version, ``""`` for ONNX's own. Raises SpecError or UnsupportedError."""
    versions: dict[str, int] = {}
    for entry in model.opset_import:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        if versions.setdefault(domain, entry.version) != entry.version:
            raise SpecError(f"the model imports the operator set {domain!r} in two versions")
    version = versions.setdefault("", 1 if model.ir_version < 3 else 0)
    newest = load_onnx().defs.onnx_opset_version()
    if not version and any(n.domain in ("", "ai.onnx") for n in model.graph.node):
        raise SpecError("the model does not say which version of ONNX's operator set it uses")
    if version and version < LEAST_OPSET:
        raise UnsupportedError(f"the model uses opset {version}; bslite reads {LEAST_OPSET} and later")
    if version > newest:
        raise UnsupportedError(
            f"the model uses opset {version}; the installed onnx knows those up to {newest}: upgrade onnx"
        )
    return versions
