"""A module that bslite cannot run as a whole: its own forward, with bslite's in the places of large layers.

A detector chooses boxes by their scores, a language model notes where it stands: such code is torch's. What
takes the time is inside, in a backbone or a stack of layers, which can be traced for themselves.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

Module = torch.nn.Module
#: A large layer has this part of all parameters. Of more than so many, none is taken: no call is to prepare
#: hundreds of layers.
SHARE, MOST = 128, 32


class Inside:
    """Runs a module's forward with other modules in the places of large ones that it holds.

    The module stays as it is. An object that shares all else with it runs the forward; what that assigns to
    its attributes is the module's afterwards.
    """

    def __init__(
        self, module: Module, wrap: Callable[[Module, int], Module], idle: Callable[[Module], bool],
        least: int = 0,
    ) -> None:  # fmt: skip
        """``wrap(layer, least)`` makes what stands for a layer, or gives the layer itself; ``idle`` says
        whether that is of no use. ``least``: the parameters of a large layer; by default a part of all.
        """
        self._module, self._wrap, self._idle, self._least = module, wrap, idle, least
        self._large = 0  # the parameters of a layer that another stands for; 0: not known yet
        self._made: dict[int, tuple[Module, Module]] = {}  # by id: a layer, and what stands for it
        self._proved = False  # a forward has come to its end
        self._fails = False  # the forward wants to be the module's own

    def forget(self) -> None:
        """Drop what stands for layers."""
        self._made, self._large, self._proved, self._fails = {}, 0, False, False

    def layers(self) -> dict[str, Module]:
        """What stands for large layers, by their paths."""
        found: dict[str, Module] = {}
        if not self._fails and "forward" not in vars(self._module):
            self._places(self._module, "", found)
        return found

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's forward."""
        if self._proved:
            return self._run(args, kwargs)
        try:
            made = self._run(args, kwargs)
        except Exception:
            made = self._module.forward(*args, **kwargs)  # unless that fails as well
            self._fails = True
            return made
        self._proved = True
        return made

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        own = vars(self._module)
        modules = self._places(self._module, "", {})
        stand = _like(self._module, modules)
        before, held = dict(vars(stand)), dict(modules)
        try:
            return stand.forward(*args, **kwargs)
        finally:
            _carry(before, vars(stand), own)
            _carry(held, modules, own["_modules"])

    def _places(self, module: Module, path: str, found: dict[str, Module]) -> dict[str, Module | None]:
        """What ``module`` holds, by name, with others for large layers, which are noted by their paths."""
        held = module._modules.items()
        return {name: child and self._place(child, path + name, found) for name, child in held}

    def _place(self, layer: Module, path: str, found: dict[str, Module]) -> Module:
        if _is_list(layer):
            return _like(layer, self._places(layer, f"{path}.", found))
        made = self._made.get(id(layer))
        if made is None:
            self._least = self._least or max(1, _size(self._module) // SHARE)
            self._large = self._large or _bound(self._module, self._least)
            made = layer, self._wrap(layer, self._least) if _size(layer) >= self._large else layer
            self._made[id(layer)] = made
        if made[1] is not layer and self._idle(made[1]):
            made = self._made[id(layer)] = layer, layer
        if made[1] is not layer:
            found[path] = made[1]
        return made[1]


def _size(module: Module) -> int:
    return sum(p.numel() for p in module.parameters())


def _is_list(module: Module) -> bool:
    """Whether others call the layers that ``module`` holds."""
    return _has_no_forward(type(module))  # type: ignore[arg-type]


@functools.cache
def _has_no_forward(kind: Any) -> bool:
    return inspect.getattr_static(kind, "forward", None) is Module.forward


def _bound(module: Module, least: int) -> int:
    """The parameters of a layer, ``least`` or more, that few of the layers in ``module`` have."""
    waiting, sizes = list(module.children()), []
    while waiting:
        layer = waiting.pop()
        if _is_list(layer):
            waiting += layer.children()
        else:
            sizes.append(_size(layer))
    while sum(size >= least for size in sizes) > MOST:
        least *= 2
    return least


def _like(module: Module, modules: Mapping[str, Module | None]) -> Module:
    """An object like ``module`` that holds ``modules``."""
    made: Module = object.__new__(type(module))
    object.__setattr__(made, "__dict__", {**vars(module), "_modules": modules})
    return made


def _carry(before: dict[str, Any], after: dict[str, Any], to: dict[str, Any]) -> None:
    """Make the changes from ``before`` to ``after`` in ``to``."""
    for name, value in after.items():
        if name not in before or before[name] is not value:
            to[name] = value
    for name in before.keys() - after.keys():
        to.pop(name, None)
