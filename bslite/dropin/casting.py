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


@contextmanager
def aside(dtype: Dtype) -> Iterator[None]:
    """Switch the CPU's autocast off and note its ``dtype``; with None there is nothing to do."""
    if dtype is None:
        yield
        return
    token = _noted.set(dtype)
    torch.set_autocast_enabled("cpu", False)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cpu", True)
        _noted.reset(token)


@contextmanager
def again() -> Iterator[None]:
    """Switch on what is set aside, as it was."""
    if noted() is None:
        yield
        return
    token = _noted.set(None)
    torch.set_autocast_enabled("cpu", True)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cpu", False)
        _noted.reset(token)


def region(dtype: Dtype) -> AbstractContextManager[object]:
    """A region of autocast to ``dtype``, for a trace to see."""
    return nullcontext() if dtype is None else torch.autocast("cpu", dtype, cache_enabled=False)
