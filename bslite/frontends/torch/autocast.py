"""Regions of autocast: torch.export makes graphs of their own of them, and forgets where gradients are off
within. Those that switch it off where it is off are not to be in a trace at all; the casts of others are
written out.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from bslite.errors import UnsupportedError
from bslite.frontends.common.lazy import load_torch
from bslite.frontends.torch.graph import is_getitem
from bslite.frontends.torch.modes import inline
from bslite.frontends.torch.put import put
from bslite.frontends.torch.tracing.quiet import quiet

if TYPE_CHECKING:
    import torch
    from torch.fx import Node

UNKNOWN = 2  # what stands for a size that values decide


def has_autocast(program: "torch.export.ExportedProgram") -> bool:
    """Whether the graph of a trace has such a region, beside those within others."""
    region = load_torch().ops.higher_order.wrap_with_autocast
    return any(node.target is region for node in program.graph.nodes)


def check_switches(program: "torch.export.ExportedProgram", name: str) -> None:
    """Raise UnsupportedError where a trace switches autocast and has no region of it: beside control flow."""
    if any("_enter_autocast" in str(node.target) for node in program.graph.nodes):
        what = "control flow (cond, while_loop, scan), beside which its trace does not show autocast"
        raise UnsupportedError(f"model {name!r}: its forward has {what}")


@contextmanager
def autocast_unseen() -> Iterator[None]:
    """A context in which ``torch.autocast(enabled=False)`` of this thread does nothing where it is off."""
    torch = load_torch()
    kind, here = torch.amp.autocast_mode.autocast, threading.get_ident()
    enter, leave = kind.__enter__, kind.__exit__
    entered: list[tuple[Any, bool]] = []  # a context may be entered again within itself

    def unseen_enter(self: Any) -> Any:
        if threading.get_ident() != here:
            return enter(self)
        off = not (self._enabled or torch.is_autocast_enabled(self.device))
        entered.append((self, off))
        return self if off else enter(self)

    def unseen_leave(self: Any, *error: Any) -> Any:
        if threading.get_ident() != here:
            return leave(self, *error)
        own = [i for i, (context, _) in enumerate(entered) if context is self]
        off = bool(own) and entered.pop(own[-1])[1]  # they may be left in any order
        return False if off else leave(self, *error)

    kind.__enter__, kind.__exit__ = unseen_enter, unseen_leave
    try:
        yield
    finally:
        kind.__enter__, kind.__exit__ = enter, leave


def write_casts(program: "torch.export.ExportedProgram", name: str) -> None:
    """Put the operations of regions of autocast among the others, with the casts that it makes there; and
    those of regions where gradients are off or on, which for a trace without gradients is all the same.

    Raises UnsupportedError for autocast of a device other than the CPU, and for an operation within which
    casts are unknown.
    """
    regions = load_torch().ops.higher_order
    casting: dict[Node, Any] = {}  # operation -> the dtype that autocast is on for
    both = (regions.wrap_with_autocast, regions.wrap_with_set_grad_enabled)
    while found := [node for node in program.graph.nodes if node.target in both]:
        for node in found:
            if node.target is both[0]:
                device, dtype, enabled, _, held, *given = node.args
                if enabled and device != "cpu":
                    raise UnsupportedError(f"model {name!r}: its forward switches autocast of {device} on")
                low = dtype if enabled else None
            else:
                _, held, *given = node.args
                low = casting.get(node)
            casting.update(dict.fromkeys(inline(program, node, held, given), low))
    with quiet():
        for node in list(program.graph.nodes):
            if (low := casting.get(node)) is not None:
                _cast(program.graph, node, low)
    program.graph_module.recompile()


def _cast(graph: Any, node: "Node", low: Any) -> None:
    """Put the casts before and after an operation that autocast to ``low`` makes for it.

    What they are torch itself says, by running it on stand-ins, which tells those of operands. In an
    operation that torch composes of others (``lstm``, ``einsum``) it casts within: then all operands are.
    """
    torch = load_torch()
    floats = [n for n in node.all_input_nodes if _floats(n)]
    if node.op != "call_function" or is_getitem(node) or not floats:
        return
    packed = str(node.target).startswith("bslite.recurrent")
    casts = dict.fromkeys(floats, low) if packed else _observed(node, floats, low)
    if not casts:
        return
    to, made = torch.ops.aten.to.dtype, _result(node, casts)
    with graph.inserting_before(node):
        for source, dtype in casts.items():
            if source.meta["val"].dtype != dtype:
                node.replace_input_with(source, put(graph, node, to, source, dtype))
    for result in [n for n in node.users if is_getitem(n)] or [node]:
        value = made if result is node else made[result.args[1]]
        wanted = result.meta["val"]
        if not isinstance(value, torch.Tensor) or value.dtype == wanted.dtype:
            continue
        result.meta["val"], users = wanted.to(value.dtype), list(result.users)
        with graph.inserting_after(result):
            cast = put(graph, result, to, result, wanted.dtype)
        for user in users:
            user.replace_input_with(result, cast)


def _floats(node: "Node") -> bool:
    value = node.meta.get("val")
    return isinstance(value, load_torch().Tensor) and value.is_floating_point()


def _run(node: "Node", values: "dict[Node, Any]") -> Any:
    """``node`` on ``values``."""
    args, kwargs = load_torch().fx.map_arg((node.args, node.kwargs), values.__getitem__)
    return node.target(*args, **kwargs)  # type: ignore[operator]


def _stand_ins(node: "Node") -> "tuple[Any, dict[Node, Any]]":
    """What stands for the operands of ``node``, and the mode in which it does: of the sizes of the example,
    so that nothing is asked of those that are free.
    """
    torch = load_torch()
    from torch._subclasses.fake_tensor import FakeTensorMode

    def settled(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            shape, strides = map(settled, value.shape), map(settled, value.stride())
            return torch.empty_strided([*shape], [*strides], dtype=value.dtype, device="cpu")
        if isinstance(value, (list, tuple)):
            return [*map(settled, value)]
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return value.node.hint if value.node.has_hint() else UNKNOWN
        return value

    with FakeTensorMode() as mode:
        return mode, {n: settled(n.meta["val"]) for n in node.all_input_nodes}


def _observed(node: "Node", floats: "list[Node]", low: Any) -> "dict[Node, Any]":
    """The operands that autocast to ``low`` casts, each with its dtype."""
    torch, (mode, values) = load_torch(), _stand_ins(node)
    listener, cast = _listener()({id(values[n]): n for n in floats}, low), torch.autocast("cpu", low)
    with mode, listener, torch.no_grad(), cast, suppress(RuntimeError):  # some know no listeners
        _run(node, values)
    return dict.fromkeys(floats, low) if listener.within else listener.casts


def _result(node: "Node", casts: "dict[Node, Any]") -> Any:
    """What ``node`` makes of operands that are cast. Raises UnsupportedError where it does not take them."""
    mode, values = _stand_ins(node)
    with mode, load_torch().no_grad():
        try:
            return _run(node, {n: v.to(casts[n]) if n in casts else v for n, v in values.items()})
        except RuntimeError as e:
            raise UnsupportedError(f"what autocast casts within {node.target} is not known: {e}") from e


@cache
def _listener() -> Any:
    torch = load_torch()
    from torch.utils._python_dispatch import TorchDispatchMode

    class Listener(TorchDispatchMode):
        """Notes which of the ``known`` tensors are cast, and whether others are, to ``low``."""

        def __init__(self, known: "dict[int, Node]", low: Any) -> None:
            super().__init__()
            self.known, self.low, self.casts, self.within = known, low, dict[Any, Any](), False

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten._to_copy.default and (dtype := (kwargs or {}).get("dtype")):
                if id(args[0]) in self.known:
                    self.casts.setdefault(self.known[id(args[0])], dtype)
                elif args[0].dtype == torch.float32 and dtype == self.low:
                    self.within = True
            return func(*args, **(kwargs or {}))

    return Listener
