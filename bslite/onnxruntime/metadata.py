"""What a session tells of its model."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bslite.spec.ports import Port

#: onnxruntime's names of element types, where they are not NumPy's.
TYPES = {"float32": "float", "float64": "double"}


def dtype_of(type_name: str) -> np.dtype[Any]:
    """NumPy's dtype of ``"tensor(float)"``. TypeError if it has none."""
    element = type_name.removeprefix("tensor(").removesuffix(")")
    return np.dtype({theirs: ours for ours, theirs in TYPES.items()}.get(element, element))


@dataclass(frozen=True)
class NodeArg:
    """An input or output: ``type`` as onnxruntime writes it, sizes as numbers, names, or None."""

    name: str
    type: str
    shape: list[int | str | None]

    @classmethod
    def of(cls, port: Port) -> "NodeArg":
        """The same of a `Port`."""
        return cls(port.name, f"tensor({TYPES.get(port.dtype, port.dtype)})", list(port.shape or ()))


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
