"""Ways into a ModelSpec. Optional packages are imported where they are used, never here."""

from bslite.frontends.onnx_import import from_onnx
from bslite.frontends.state_dict import from_state_dict
from bslite.frontends.torch_export import from_torch

__all__ = ["from_onnx", "from_state_dict", "from_torch"]
