"""Named architectures, described once in their own files, with torchvision's names for every parameter."""

from __future__ import annotations

import difflib

from bslite.errors import UnsupportedError
from bslite.frontends.weights.architectures import (
    alexnet,
    densenet,
    efficientnet,
    googlenet,
    inception,
    mobilenet,
    resnet,
    squeezenet,
    vgg,
)
from bslite.frontends.weights.architectures.net import Architecture, Net

__all__ = ["NAMES", "Architecture", "Net", "get"]

_FAMILIES = (alexnet, vgg, resnet, squeezenet, densenet, googlenet, inception, mobilenet, efficientnet)
_ALL = {a.name: a for family in _FAMILIES for a in family.ARCHITECTURES}

#: Every name `get` and `bslite.frontends.weights.state_dict.from_state_dict` know.
NAMES = tuple(_ALL)


def get(name: str) -> Architecture:
    """The architecture called ``name``; else UnsupportedError with near misses and the whole list."""
    if name in _ALL:
        return _ALL[name]
    near = difflib.get_close_matches(str(name), NAMES, n=3)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise UnsupportedError(f"unknown architecture {name!r}{hint}\n  there is: {', '.join(NAMES)}")
