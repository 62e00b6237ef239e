"""Tensors that a trace takes as they are, where torch has stand-ins for the parameters and buffers that it
knows: in plain attributes, in other objects, global.
"""

import dis
import functools
import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from bslite.frontends.common.lazy import load_torch
from bslite.frontends.torch.tracing.reach import closed, held, modules_in, tensors_within, within

if TYPE_CHECKING:
    import torch


GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME")


def _reached(module: "torch.nn.Module") -> "Iterator[torch.Tensor]":
    """Tensors in attributes of a module, of those inside and of their classes, and what functions there have
    in their closures and name of their globals.
    """
    plain = load_torch().nn.Module.__mro__
    classes = {cls for m in module.modules() for cls in type(m).__mro__ if cls not in plain}
    spaces = [list(vars(owner).values()) for owner in (*module.modules(), *classes)]
    yield from itertools.chain.from_iterable(map(tensors_within, itertools.chain(*spaces)))
    read: list[Any] = []
    for function in {value for space in spaces for value in space if isinstance(value, FunctionType)}:
        named = (function.__globals__.get(name) for name in _globals_of(function.__code__))
        read += (*closed(function), *named)
    for value in read:
        yield from tensors_within(value, 0)  # a program's containers may be large, or load what is read
    kind = load_torch().nn.Parameter  # of which all would be copied
    yield from (t for t in held(within(*modules_in(read, 0))) if not isinstance(t, kind))


@functools.lru_cache(maxsize=4096)
def _globals_of(code: CodeType) -> frozenset[str]:
    """The names of globals, not those of attributes, that code has."""
    return frozenset(str(i.argval) for i in dis.get_instructions(code) if i.opname in GLOBALS)


def origins(tensors: "Iterable[torch.Tensor]", constants: Iterable[Any]) -> "list[torch.Tensor]":
    """Those of ``tensors`` whose memory constants of a trace are. The constants themselves are detached."""
    torch = load_torch()
    places = {c.data_ptr() for c in constants if isinstance(c, torch.Tensor) and c.layout == torch.strided}
    kinds = (torch.Tensor, torch.nn.Parameter)  # others may have no memory
    found = {id(t): t for t in tensors if type(t) in kinds and t.layout == torch.strided} if places else {}
    return [t for t in found.values() if t.data_ptr() in places]


@contextmanager
def unchanged(module: "torch.nn.Module") -> Iterator[None]:
    """Put back what is written meanwhile to tensors that are neither parameters nor buffers, or are held by
    other objects, too: torch's stand-ins for them write through, while those for parameters and buffers do
    not.
    """
    torch = load_torch()
    registered = {id(t) for t in (*module.parameters(), *module.buffers())}
    plain = (torch.Tensor, torch.nn.Parameter)  # others may know no copies
    # In other objects than the modules that torch knows, even those are themselves.
    known = set(map(id, module.modules()))
    others = held(x for x in within(module) if id(x) not in known)
    found = itertools.chain(
        (t for t in _reached(module) if id(t) not in registered),
        # Parameters that an optimizer beside the module has, too, would all be copied.
        (t for t in others if not (id(t) in registered and t.requires_grad)),
    )
    loose = {id(t): t for t in found if type(t) in plain}
    before = [
        (t, t._version, t.detach().clone())
        for t in loose.values()
        if t.layout == torch.strided and not (t.is_meta or t.is_inference())
    ]
    try:
        yield
    finally:
        with torch.no_grad():
            for t, version, value in before:
                if t._version != version or not _same_bits(t, value):  # norms do not count what they write
                    with suppress(RuntimeError):  # of one whose elements coincide, to which nobody can write
                        t.copy_(value)


def _same_bits(a: "torch.Tensor", b: "torch.Tensor") -> bool:
    """Whether two tensors are equal, NaN to NaN."""
    torch = load_torch()
    if a.is_complex():
        a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
    if a.is_floating_point():
        bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
        a, b = a.view(bits), b.view(bits)
    return bool(torch.equal(a, b))
