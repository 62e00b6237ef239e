"""Regions of autocast: torch.export makes graphs of their own of them, and forgets where gradients are off
within. Those that switch it off where it is off are not to be in a trace at all.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bslite.frontends.common.lazy import load_torch

if TYPE_CHECKING:
    import torch


def has_autocast(program: "torch.export.ExportedProgram") -> bool:
    """Whether the graph of a trace has such a region, beside those within others."""
    region = load_torch().ops.higher_order.wrap_with_autocast
    return any(node.target is region for node in program.graph.nodes)


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
