"""Buffers of one whole number, from which some modules compute sizes: constants while a module is traced.

To torch.export what a buffer holds is not known, so a size computed from it is not either. A tensor that the
forward makes of a number is followed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bslite.frontends.common.lazy import load_torch
from bslite.frontends.torch.builders import operation
from bslite.frontends.torch.graph import Graph, has_tensors, writes

if TYPE_CHECKING:
    from torch import Tensor
    from torch.export import ExportedProgram
    from torch.nn import Module


def has_numbers(module: "Module") -> bool:
    """Whether a module, or one inside it, has such buffers."""
    return any(_numbers(m) for m in module.modules())


def sizes_alone(program: "ExportedProgram") -> bool:
    """Whether the whole numbers in a trace decide sizes alone: none is read as a value, none is written to. A
    change of one would not be followed.
    """
    graph = Graph(program)
    made = {s.arg.name for s in program.graph_signature.input_specs if s.kind.name == "CONSTANT_TENSOR"}
    single = [n for n in graph.nodes if has_tensors(n) and _is_number(n.meta["val"])]
    return not any((n.name in made and n in graph.live) or writes(n) for n in single)


def _is_number(x: Any) -> bool:
    return isinstance(x, load_torch().Tensor) and x.ndim == 0 and not x.is_floating_point()


def unsettled(module: "Module", program: "ExportedProgram") -> bool:
    """Whether sizes in a program depend on such a buffer and on a free size, which torch does not follow."""
    items = [n for n in program.graph.nodes if operation(n) in ("item", "_local_scalar_dense")]
    return has_numbers(module) and any(isinstance(n.meta.get("val"), load_torch().SymInt) for n in items)


def _numbers(module: "Module") -> "dict[str, Tensor]":
    """Those that no state_dict holds: what is stored may be loaded anew, and sizes would not follow."""
    buffers = {name: module._buffers.get(name) for name in module._non_persistent_buffers_set}
    return {
        name: x
        for name, x in buffers.items()
        if x is not None and x.ndim == 0 and not x.is_floating_point() and not x.is_complex()
    }


@contextmanager
def numbers_known(module: "Module") -> Iterator[None]:
    """Let each of these buffers be a tensor made anew where it is read."""
    found = [(m, type(m), dict(m._buffers), numbers) for m in module.modules() if (numbers := _numbers(m))]
    try:
        for m, kind, _, numbers in found:
            names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
            made = {name: property(_maker(x)) for name, x in numbers.items()}
            m.__class__ = type(kind.__name__, (kind,), {**names, **made})
            for name in numbers:
                del m._buffers[name]
        yield
    finally:
        for m, kind, buffers, _ in found:
            m.__class__ = kind
            m._buffers.clear()
            m._buffers.update(buffers)


def _maker(x: "Tensor") -> Any:
    number, dtype = x.item(), x.dtype
    return lambda _: load_torch().tensor(number, dtype=dtype)
