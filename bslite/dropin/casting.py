"""Autocast around a call: a trace holds its casts, so it is off while bslite prepares a call and runs it, and
on again for what torch runs of the module.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

import torch

Dtype = torch.dtype | None
_noted: ContextVar[Dtype] = ContextVar("bslite_autocast", default=None)
noted = _noted.get  # the dtype of the autocast that is set aside; None if there is none


def around() -> Dtype:
    """The dtype to which autocast has products of the CPU cast; None if it is off."""
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None


def aside(dtype: Dtype) -> AbstractContextManager[None]:
    """A context in which the CPU's autocast is off, its ``dtype`` noted; with None there is nothing to do."""
    return nullcontext() if dtype is None else _switched(False, dtype)


def again() -> AbstractContextManager[None]:
    """A context in which what is set aside is on, as it was."""
    return nullcontext() if noted() is None else _switched(True, None)


@contextmanager
def _switched(on: bool, note: Dtype) -> Iterator[None]:
    token = _noted.set(note)
    torch.set_autocast_enabled("cpu", on)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cpu", not on)
        _noted.reset(token)


def region(dtype: Dtype) -> AbstractContextManager[object]:
    """A region of autocast to ``dtype``, for a trace to see."""
    return nullcontext() if dtype is None else torch.autocast("cpu", dtype, cache_enabled=False)
