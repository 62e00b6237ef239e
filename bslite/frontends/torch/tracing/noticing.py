"""What a forward does while it is traced that gradients or later calls show, but not the traced graph.

An export follows operations. It forgets hooks on tensors and on what is saved (checkpoints); it takes
numbers of Python's generators for constants. A ``torch.autograd.Function`` of plain arguments is kept as one
operation (`bslite.frontends.torch.tracing.opaque`).
"""

import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

from bslite.frontends.common.lazy import load_torch
from bslite.frontends.torch.tracing.opaque import called

#: Functions that torch makes for operators with a registered backward pass, which graphs hold as such.
GENERATED = "GeneratedBackwardFor_"
_lock = threading.Lock()
_here = threading.local()  # ``noticed``: what this thread's trace has met
_traces = 0  # of all threads
_originals: list[tuple[Any, str, Any]] = []  # class, name, what the class itself has there, if it has


@contextmanager
def noticing() -> Iterator[list[str]]:
    """A context for one trace: a list that gets what the forward does beside its operations."""
    before: list[str] | None = getattr(_here, "noticed", None)
    noticed: list[str] = []
    _here.noticed = noticed
    drawn = generators()
    _replace(1)
    try:
        yield noticed
    finally:
        _replace(-1)
        _here.noticed = before
        if [state for state, _ in drawn] != [state for state, _ in generators()]:
            noticed.append("draws numbers from Python's or NumPy's generators")
            for state, back in drawn:
                back(state)


def _replace(step: int) -> None:
    """Watch torch's functions from the first trace on, until the last has ended."""
    global _traces
    torch = load_torch()
    watched = (
        (torch.autograd.Function, "apply", "calls torch.autograd.Function {cls.__name__}"),
        (torch.autograd.graph.saved_tensors_hooks, "__enter__", "checkpoints, or hooks what torch saves"),
        (torch.Tensor, "register_hook", "puts hooks on tensors"),
        (torch.Tensor, "retain_grad", "keeps gradients of values"),
    )
    with _lock:
        if _traces == 0:
            for owner, name, text in watched:
                _originals.append((owner, name, vars(owner).get(name)))
                setattr(owner, name, _watched(vars(owner).get(name) or getattr(owner, name), text))
        _traces += step
        while _traces == 0 and _originals:
            owner, name, before = _originals.pop()
            if before is None:
                delattr(owner, name)
            else:
                setattr(owner, name, before)


def _watched(original: Any, text: str) -> Any:
    """``original`` that says when it is called."""
    inner: Callable[..., Any] = getattr(original, "__func__", original)

    @wraps(inner)
    def said(first: Any, *args: Any, **kwargs: Any) -> Any:
        noticed = getattr(_here, "noticed", None)
        if noticed is not None and not getattr(first, "__name__", "").startswith(GENERATED):
            made = called(partial(inner, first), args) if isinstance(original, classmethod) else None
            if made is not None:
                return made
            noticed.append(text.format(cls=first))
        return inner(first, *args, **kwargs)

    return classmethod(said) if isinstance(original, classmethod) else said


def generators() -> list[tuple[Any, Callable[[Any], None]]]:
    """The states of Python's and NumPy's global generators, and how to set them."""
    found: list[tuple[Any, Callable[[Any], None]]] = [(random.getstate(), random.setstate)]
    if "numpy" in sys.modules:
        numpy: Any = sys.modules["numpy"]
        kind, keys, *rest = numpy.random.get_state()
        found.append(((kind, tuple(keys), *rest), numpy.random.set_state))
    return found
