"""A module that bslite cannot run as a whole: its own forward runs, and calls of large layers go to bslite.

A detector chooses boxes by their scores, a language model notes where it stands: such code is torch's. What
takes the time is inside, in a backbone or a stack of layers, which can be traced for themselves. A layer that
the forward never calls, since it goes through its parts itself, is opened, and so is one that sees others.

While the forward runs, each such layer has a `Stand` where ``Module.compile()`` would put a compiled call. So
layers stay the objects that they are, for the forward and for everyone else.
"""

import functools
import inspect
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from bslite.frontends.torch.tracing.reach import closed, elements

Module = torch.nn.Module
CALL = "_compiled_call_impl"  # the attribute of a module that torch calls in place of its own call
#: A large layer has this part of all parameters. Of more than so many, none is taken: no call is to prepare
#: hundreds of layers.
SHARE, MOST = 128, 32
DEPTH = 4  # of containers that are looked into
UNCALLED = 2  # forwards without a call, before a layer is opened
AGAIN = 32  # forwards without a layer that torch runs, before it is tried again
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Inside:
    """Runs a module's forward, calls of its large layers by what ``make(layer, least)`` gives: a `Runner`, or
    None.
    """

    def __init__(self, module: Module, make: Callable[[Module, int], Any], least: int = 0) -> None:
        """``least``: the parameters of a large layer; by default a part of all."""
        self._module, self._make, self._least = module, make, least
        self._large = 0  # the parameters of a layer that is taken; 0: not known yet
        self._made: dict[int, Known] = {}  # by the id of a layer
        self._lock, self._here = threading.RLock(), threading.local()

    def forget(self) -> None:
        """Drop all that was made."""
        with self._lock:
            self._made, self._large = {}, 0

    def layers(self) -> dict[str, Any]:
        """What runs large layers, by their paths."""
        return {path: stand.run for path, stand in self._stands() if not stand.run.idle()}

    def stands(self) -> "list[Stand]":
        """Those that take part in the forward that comes next."""
        return [stand for _, stand in self._stands() if stand.wanted()]

    def call(self, stands: "list[Stand]", args: Any, kwargs: Any) -> Any:
        """The module's forward."""
        with _installing:
            entered = [stand for stand in stands if stand.enter()]
        self._here.depth = self.depth + 1
        try:
            return self._module.forward(*args, **kwargs)
        finally:
            self._here.depth -= 1
            with _installing:
                for stand in entered:
                    stand.leave()

    @property
    def depth(self) -> int:
        """How many forwards of the module this thread is in."""
        return getattr(self._here, "depth", 0)

    def _stands(self) -> "list[tuple[str, Stand]]":
        with self._lock:
            held, self._made = self._made, {}
            self._least = self._least or max(1, _size(self._module) // SHARE)
            self._large = self._large or _bound(self._module, self._least)
            return list(self._within(self._module, "", self._large, held))

    def _within(
        self, module: Module, path: str, large: int, held: "dict[int, Known]"
    ) -> "Iterator[tuple[str, Stand]]":
        """The layers in ``module`` that have ``large`` parameters or more. ``held``: what is known."""
        for name, layer in _layers(module):
            if id(layer) in self._made:
                continue
            known = self._made[id(layer)] = held.get(id(layer)) or self._new(layer, large)
            if known.stand is not None and not known.stand.passed():
                yield path + name, known.stand
            elif known.opens:
                known.large = known.large or _bound(layer, large)
                yield from self._within(layer, f"{path}{name}.", known.large, held)

    def _new(self, layer: Module, large: int) -> "Known":
        if _size(layer) < large:
            return Known(layer, None, opens=False)
        if type(layer)._call_impl is not Module._call_impl or _sees_others(layer):
            return Known(layer, None)
        run = self._make(layer, self._least)
        return Known(layer, None if run is None else Stand(self, layer, run), opens=run is not None)


@dataclass
class Known:
    """A layer, what stands for it, and whether its own layers are tried where nothing does.

    ``large``: the parameters of one of those that is taken, once they are.
    """

    layer: Module
    stand: "Stand | None"
    opens: bool = True
    large: int = 0


class Stand:
    """What torch calls for ``layer`` while a forward of ``inside``'s module runs."""

    def __init__(self, inside: Inside, layer: Module, run: Any) -> None:
        self.inside, self.layer, self.run = inside, layer, run
        self._entered = self._skipped = self._uncalled = 0
        self._called = False
        self._training = layer.training

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._called = True
        held = vars(self.layer)
        looked_at = "_call_impl" in held or any(held.get(h) for h in HOOKS) or _any_global_hook()
        if not self.inside.depth or looked_at or _checkpoints():
            return self.layer._call_impl(*args, **kwargs)  # another thread's call, or one that others look at
        return self.run(args, kwargs)

    def __deepcopy__(self, memo: Any) -> None:
        """A copy of the layer is not called from here."""

    def __reduce__(self) -> Any:
        return type(None), ()

    def wanted(self) -> bool:
        """Whether to take part. If torch runs the layer anyway, it is tried ever more seldom.

        In the other mode it is tried anew.
        """
        if self._training != self.layer.training:
            self._training, self._skipped = self.layer.training, 0
            self.run.again()
        if not self.run.idle():
            return True
        self._skipped += 1
        if self._skipped < AGAIN or self._skipped & (self._skipped - 1):
            return False
        self.run.again()
        return True

    def passed(self) -> bool:
        """Whether forwards do not call the layer."""
        return not self._called and self._uncalled >= UNCALLED

    def enter(self) -> bool:
        """A forward begins. A layer that is compiled, or that another forward has taken, is let alone."""
        held = vars(self.layer)
        if held.get(CALL) is None:
            held[CALL] = self
        free = held[CALL] is self
        self._entered += free
        return free

    def leave(self) -> None:
        """A forward ends that has entered."""
        self._entered -= 1
        self._uncalled += not self._called
        if not self._entered and vars(self.layer).get(CALL) is self:
            del vars(self.layer)[CALL]


_installing = threading.Lock()


def _any_global_hook() -> bool:
    return bool(torch.nn.modules.module._has_any_global_hook())


def _checkpoints() -> bool:
    """Whether what is saved for the backward pass is hooked: a checkpoint runs the layer again, by torch."""
    return torch.is_grad_enabled() and torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def _size(module: Module) -> int:
    lazy = torch.nn.parameter.is_lazy
    return sum(0 if lazy(p) else p.numel() for p in module.parameters())


def _layers(module: Module, path: str = "") -> Iterator[tuple[str, Module]]:
    """The layers that a module calls: those that it holds, and those in lists that it holds."""
    for name, child in module.named_children():
        if _has_no_forward(type(child)):  # type: ignore[arg-type]
            yield from _layers(child, f"{path}{name}.")
        else:
            yield path + name, child


@functools.cache
def _has_no_forward(kind: Any) -> bool:
    return inspect.getattr_static(kind, "forward", None) is Module.forward


def _bound(module: Module, least: int) -> int:
    """The parameters of a layer, ``least`` or more, that few of the layers in ``module`` have."""
    sizes = [_size(layer) for _, layer in _layers(module)]
    while sum(size >= least for size in sizes) > MOST:
        least *= 2
    return least


def _sees_others(layer: Module) -> bool:
    """Whether a module that ``layer`` does not hold, or an object in a container, can be reached from it: the
    layer may read what others note there, which `Watch` does not follow.
    """
    own = set(map(id, layer.modules()))

    def reaches(value: Any, depth: int) -> bool:
        if isinstance(value, Module):
            return id(value) not in own
        if not depth:
            return False
        inner = elements(value)
        if isinstance(value, weakref.ref):
            inner.append(value())
        elif isinstance(value, functools.partial):
            inner += [value.func, *value.args, *value.keywords.values()]
        elif isinstance(value, types.MethodType):
            inner += [value.__self__, value.__func__]
        elif isinstance(value, types.FunctionType):
            inner += closed(value)
        elif depth < DEPTH and isinstance(getattr(value, "__dict__", None), dict):
            return not isinstance(value, (type, types.ModuleType, torch.Tensor))
        return any(reaches(x, depth - 1) for x in inner)

    return any(
        reaches(value, DEPTH) for m in layer.modules() for k, value in vars(m).copy().items() if k != CALL
    )
