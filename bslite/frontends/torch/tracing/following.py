"""Whole numbers that a forward computes with while it is traced, followed as numbers.

A trace knows sizes, not values. A forward that makes tensors of sizes (``torch.arange``), computes with them
and asks for the result (``tolist``, ``nonzero``) cannot be traced, although the answer is the same at every
call. Here such tensors stay real ones, computed at once; where they meet traced tensors they are constants.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bslite.frontends.common.lazy import load_torch

if TYPE_CHECKING:
    from torch import Tensor
    from torch.export import ExportedProgram
    from torch.nn import Module

#: Functions whose results are followed; `ZEROS` only as whole numbers or truth values, as a forward makes
#: others to write traced values into.
MADE = ("arange", "linspace", "tensor", "as_tensor", "ones", "full")
ZEROS = "zeros"
#: What a tensor says without its values; ``__get__`` reads an attribute.
SAID = frozenset((
    "__get__", "__set__", "__len__", "__hash__", "__setitem__", "size", "dim", "ndimension", "numel",
    "nelement", "stride", "storage_offset", "element_size", "itemsize", "is_contiguous", "is_floating_point",
    "is_complex", "is_signed", "get_device", "untyped_storage", "is_same_size", "is_tensor",
))  # fmt: skip
ENQUIRY = (
    "data-dependent",
    "DataDependent",
    "DynamicOutputShape",
    "unbacked",
    ".numpy() is not supported",
)  # in errors of torch.export


class Following:
    """What is followed in a trace.

    ``given``: tensors among the forward's arguments whose values are to be known, by place. ``decided``: the
    places of those that the forward asked for values, to choose sizes or what it does.
    """

    def __init__(self, given: "Mapping[int, Tensor] | None" = None) -> None:
        self.given = dict(given or {})
        self.decided: set[int] = set()
        self._followed: dict[int, Tensor] = {}  # by id
        self._sources: dict[int, frozenset[int]] = {}  # places that a followed tensor's memory depends on
        self._own: set[int] = set()  # the memory of what is given
        self._copies: list[Any] = []  # arguments, what is given copied

    def start(self, args: Sequence[Any]) -> list[Any]:
        """A forward's arguments, those that are known as copies, for a run that begins."""
        self._followed, self._sources = {}, {}
        with load_torch().utils._python_dispatch._disable_current_modes():
            made = [self.given[i].detach().clone() if i in self.given else x for i, x in enumerate(args)]
        for place in self.given:
            self.note(made[place], frozenset((place,)))
        self._own, self._copies = {_memory(made[place]) for place in self.given}, made
        return made

    def note(self, made: Any, sources: frozenset[int]) -> None:
        """Follow what has been computed from ``sources``."""
        for x in _tensors(made):
            self._followed[id(x)] = x
            memory = _memory(x)
            self._sources[memory] = self._sources.get(memory, frozenset()) | sources

    def sources(self, values: Any) -> frozenset[int]:
        """The places that followed tensors depend on."""
        none: frozenset[int] = frozenset()
        return none.union(*(self._sources.get(_memory(x), none) for x in _tensors(values)))

    def is_given(self, values: Any) -> bool:
        """Whether it is, or shares memory with, a tensor among the forward's arguments."""
        return any(_memory(x) in self._own for x in _tensors(values))

    def _places(self, index: Any) -> Any:
        """``index`` with the places where followed conditions hold, so that it is known how many there are,
        and with numbers as the ends of runs.
        """
        torch = load_torch()
        single = not isinstance(index, tuple)
        made: list[Any] = []
        for x in (index,) if single else index:
            if id(x) in self._followed and x.dtype == torch.bool and x.ndim:
                made += self.call(torch.Tensor.nonzero, (x,), {"as_tuple": True})
            elif isinstance(x, slice):
                made.append(slice(*map(self._number, (x.start, x.stop, x.step))))
            else:
                made.append(x)
        return made[0] if single and len(made) == 1 else tuple(made)

    def _number(self, x: Any) -> Any:
        return self.call(load_torch().Tensor.item, (x,), {}) if id(x) in self._followed else x

    def _as_constants(self, values: Any) -> Any:
        """``values`` with copies of followed tensors."""
        torch = load_torch()
        with torch.utils._python_dispatch._disable_current_modes():
            return torch.utils._pytree.tree_map(lambda x: x.clone() if id(x) in self._followed else x, values)

    def own(self, x: Any, args: Sequence[Any]) -> Any:
        """A result of the forward; of a followed tensor a copy, made at each run of the trace. ``args``: the
        forward's own.
        """
        if id(x) not in self._followed:
            return x
        for place in self.given:
            if x is self._copies[place]:
                return args[place]
        if self.is_given(x):
            raise NotImplementedError("the forward returns a part of an argument that is followed")
        return x.clone()

    def call(self, function: Any, args: Any, kwargs: Any) -> Any:
        """The result of a function, followed if it depends on followed tensors and numbers alone."""
        torch = load_torch()
        name = getattr(function, "__name__", "")
        if name == "__iter__" and id(args[0]) in self._followed:
            return iter(self.call(torch.Tensor.unbind, args, {}))
        if name in ("__getitem__", "__setitem__") and id(args[0]) not in self._followed:
            args = (args[0], self._places(args[1]), *args[2:])
            if name == "__setitem__" and any(x.numel() == 0 for x in _tensors(args[1])):
                return None  # nothing is written
        leaves = torch.utils._pytree.tree_leaves((args, kwargs))
        known = [id(x) in self._followed for x in leaves if isinstance(x, torch.Tensor)]
        free = any(isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool)) for x in leaves)
        if free or not all(known) or not (known or _makes(function, name)):
            written = [args[0] if args and _writes(name) else None, kwargs.get("out")]
            if any(id(x) in self._followed for x in _tensors(written)):
                raise NotImplementedError("a traced value is written into a tensor that is followed")
            if any(known) and name not in SAID - {
                "__setitem__"
            }:  # as it is now: the forward may write to it later
                args, kwargs = self._as_constants((args, kwargs))
            return function(*args, **kwargs)
        with torch.utils._python_dispatch._disable_current_modes(), _asked(self):
            made = function(*args, **kwargs)
        if not known and name == ZEROS and (made.is_floating_point() or made.is_complex()):
            return function(*args, **kwargs)
        self.note(made, self.sources((args, kwargs)))
        if name not in SAID and len(_tensors(made)) < len(torch.utils._pytree.tree_leaves(made)):
            self.decided |= self.sources((args, kwargs))
        return made


@contextmanager
def followed(module: "Module", following: Following) -> Iterator[None]:
    """Have ``module``'s forward, run by anyone, follow numbers."""
    kind = type(module)

    @functools.wraps(kind.forward)
    def forward(this: Any, *args: Any, **kwargs: Any) -> Any:
        known = following.start(args)
        with _mode(following):
            made = kind.forward(this, *known, **kwargs)
        return load_torch().utils._pytree.tree_map(lambda x: following.own(x, args), made)

    scope = {"forward": forward, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    module.__class__ = type(kind.__name__, (kind,), scope)
    try:
        yield
    finally:
        module.__class__ = kind


def enquires(error: Exception) -> bool:
    """Whether a trace failed because the forward asks for values."""
    text = f"{type(error).__name__}: {error}"
    return any(word in text for word in ENQUIRY)


def sizes_of_values(program: "ExportedProgram") -> bool:
    """Whether a trace has sizes that depend on what tensors hold."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return any(free_unbacked_symbols(n.meta["val"]) for n in program.graph.nodes if _sized(n.meta.get("val")))


def _sized(value: Any) -> bool:
    torch = load_torch()
    return isinstance(value, (torch.Tensor, torch.SymInt))


def _mode(following: Following) -> Any:
    """A context in which torch's functions are `Following.call`."""
    from torch.overrides import TorchFunctionMode

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return following.call(func, args, kwargs or {})

    return Mode()


def _asked(following: Following) -> Any:
    """A context that notes what the operations inside a function ask for, and what they write."""
    from torch.utils._python_dispatch import TorchDispatchMode

    torch = load_torch()
    asks = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            sources = following.sources((args, kwargs))
            picks = func is torch.ops.aten.index.Tensor and not any(
                x.dtype in (torch.bool, torch.uint8) for x in _tensors(args[1])
            )
            if asks & set(func.tags) and not picks:
                following.decided |= sources
            if torch.Tag.nondeterministic_seeded in func.tags:
                raise NotImplementedError("the forward draws numbers")
            if func._schema.is_mutable and following.is_given(args[0]):
                raise NotImplementedError("the forward writes to an argument that is followed")
            made = func(*args, **kwargs)
            following.note((made, args, kwargs) if func._schema.is_mutable else made, sources)
            return made

    return Mode()


def _makes(function: Any, name: str) -> bool:
    return name in (*MADE, ZEROS) and function is getattr(load_torch(), name)


def _writes(name: str) -> bool:
    """Whether a function of this name writes to its first argument."""
    plain = name.startswith("__i") and name not in ("__int__", "__index__", "__invert__", "__iter__")
    return plain or name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))


def _tensors(values: Any) -> "list[Tensor]":
    torch = load_torch()
    return [x for x in torch.utils._pytree.tree_leaves(values) if isinstance(x, torch.Tensor)]


def _memory(x: "Tensor") -> int:
    """What tensors that share memory have in common."""
    return x.untyped_storage()._cdata
