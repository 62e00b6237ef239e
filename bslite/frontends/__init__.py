"""Ways into a ModelSpec. Optional packages are imported where they are used, never here."""

from bslite.frontends.torch.convert import from_torch
from bslite.frontends.weights.state_dict import from_state_dict

__all__ = ["from_state_dict", "from_torch"]
