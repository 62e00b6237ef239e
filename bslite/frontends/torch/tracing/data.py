"""``x.data`` in a trace: torch.export takes what it gives for a constant. ``x.detach()`` is the same tensor,
but that autograd counts what is written to it.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bslite.errors import UnsupportedError
from bslite.frontends.common.lazy import load_torch

if TYPE_CHECKING:
    import torch


@contextmanager
def data_followed() -> Iterator[None]:
    """Have ``x.data`` be ``x.detach()`` in this thread. UnsupportedError for what is assigned to it: then a
    stand-in would be another tensor.
    """
    tensor, here = load_torch().Tensor, threading.get_ident()
    original = tensor.data  # torch's, or that of a trace around this one

    def get(x: "torch.Tensor") -> "torch.Tensor":
        made: torch.Tensor = x.detach() if threading.get_ident() == here else original.__get__(x)
        return made

    def put(x: "torch.Tensor", value: "torch.Tensor") -> None:
        if threading.get_ident() == here:
            raise UnsupportedError("its forward assigns to the data of a tensor")
        original.__set__(x, value)

    inner = "data" in vars(tensor)
    tensor.data = property(get, put)
    try:
        yield
    finally:
        if inner:
            tensor.data = original
        else:
            del tensor.data
