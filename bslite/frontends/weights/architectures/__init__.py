"""Named architectures, described once in their own files, with torchvision's names for every parameter."""

import difflib

from bslite.errors import UnsupportedError
from bslite.frontends.weights.architectures.net import ARCHITECTURES, Architecture, Net
from bslite.registry import load_modules

__all__ = ["NAMES", "Architecture", "Net", "get"]

load_modules(__name__, skip=["random_weights"])
#: Every name `get` and `bslite.frontends.weights.state_dict.from_state_dict` know.
NAMES = tuple(ARCHITECTURES)


def get(name: str) -> Architecture:
    """The architecture called ``name``; else UnsupportedError with near misses and the whole list."""
    if name in ARCHITECTURES:
        return ARCHITECTURES[name]
    near = difflib.get_close_matches(str(name), NAMES, n=3)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise UnsupportedError(f"unknown architecture {name!r}{hint}\n  there is: {', '.join(NAMES)}")
