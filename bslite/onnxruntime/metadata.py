"""What a session tells of its model."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bslite.frontends.onnx.tensors import dtype_name
from bslite.spec.ports import Port

#: onnxruntime's names of element types, where they are not NumPy's.
TYPES = {"float32": "float", "float64": "double"}


def dtype_of(type_name: str) -> np.dtype[Any]:
    """NumPy's dtype of ``"tensor(float)"``. TypeError if it has none."""
    element = type_name.removeprefix("tensor(").removesuffix(")")
    return np.dtype({theirs: ours for ours, theirs in TYPES.items()}.get(element, element))


def type_name(declared: Any) -> str:
    """``"tensor(float)"``, ``"seq(map(int64,tensor(float)))"`` and the like of a type in a file."""
    kind = declared.WhichOneof("value")
    if kind == "sequence_type":
        return f"seq({type_name(declared.sequence_type.elem_type)})"
    if kind == "optional_type":
        return f"optional({type_name(declared.optional_type.elem_type)})"
    if kind == "map_type":
        key = dtype_name(declared.map_type.key_type)
        return f"map({key},{type_name(declared.map_type.value_type)})"
    sparse = kind == "sparse_tensor_type"
    tensor = declared.sparse_tensor_type if sparse else declared.tensor_type
    element = dtype_name(tensor.elem_type) or "unknown"
    return f"{'sparse_' * sparse}tensor({TYPES.get(element, element)})"


@dataclass(frozen=True)
class NodeArg:
    """An input or output: ``type`` as onnxruntime writes it, sizes as numbers, names, or None."""

    name: str
    type: str
    shape: list[int | str | None]

    @classmethod
    def of(cls, port: Port, declared: Any) -> "NodeArg":
        """The same of a `Port`, of the type that the file declares."""
        return cls(port.name, type_name(declared), list(port.shape or ()))


@dataclass(frozen=True)
class ModelMetadata:
    """What a model file says of itself."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: dict[str, str] = field(default_factory=dict)
