"""`optimize`: a module that differs from the given one only in the speed of its forward.

The wrapped module shares the ``__dict__`` of the original, so both see the same parameters, submodules,
hooks, mode and plain attributes, and a change through one is a change of both. The class of the wrapped
module is a subclass of the original class with another ``forward``.
"""

import copy
import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch

from bslite.api import check_threads
from bslite.arithmetic import current, precision_of
from bslite.dropin.options import Options
from bslite.dropin.runner import SLOT, Runner, runner_of
from bslite.errors import InputError, UnsupportedError

OWN = "_bslite_forward"  # the slot for a forward put in the place of a drop-in's
FALLBACKS = ("warn", "error", "silent")


def optimize(
    module: torch.nn.Module,
    example_inputs: Any = None,
    *,
    fallback: str = "warn",
    tune: bool = True,
    threads: int | None = None,
    training: bool | None = None,
    bucket_mb: float | None = None,
    memory: int | None = None,
    precision: str | None = None,
) -> Any:
    """``module`` with a faster forward: a drop-in for it, sharing its parameters, submodules and hooks.

    ``example_inputs``: a tensor, or a tuple of the forward's positional arguments, to specialise on now; by
    default the first call specialises. Other batches need no other specialisation. Other sizes do: the second
    is traced once more, with sizes left free, later ones are not traced where the module allows.

    The module runs inference on tensors of the CPU or, if module and inputs are on one, of a GPU (on
    torch's current stream): of float32, or of bfloat16 or float16, which are float32 between the layers
    that run in bslite. Products of bfloat16 factors may be computed as such at every precision but
    "ieee". The original forward runs, with one warning, in training mode without gradients (if a layer
    asks for its mode), where gradients are needed in eval mode, in training under autocast, on several
    devices, on a device of another kind, and while another tool traces the module. A forward that cannot be
    traced (sizes depend on values, or a call reads what one before has noted) runs as it is, and its large
    layers are optimized each for itself. One that asks for truth values or whole numbers runs in bslite
    while they are those of its first call. Operations that bslite has no op for run in torch inside the
    same graph; ``fallback`` says whether a warning lists them (``"warn"``), nothing is said
    (``"silent"``), or UnsupportedError is raised (``"error"``), as for calls with other such values. With
    ``tune``, a part that is measured slower in bslite than in torch stays in torch; ``tune=False``
    measures nothing, so that the same parts run in the same place every time. ``threads`` and
    ``precision`` as for `bslite.run`.
    `bslite.report` shows what runs where.

    Calls that need gradients with layers in training mode run on torch's tape, float32 on the CPU: parts of
    them in bslite, forwards and backwards, what has no gradient there in torch. With ``training=True`` so do
    those in eval mode or without gradients; with ``training=False`` torch trains. A part has ``bucket_mb`` MB
    of parameters or fewer, whose gradients are ready together while the backward pass goes on. By default
    that is what a bucket of DistributedDataParallel holds if there is a process group, and else no limit.
    What parts save between the passes takes at most ``memory`` bytes, if it is given; the rest is computed
    again, what is cheap first. Then all parts stay in bslite, for torch keeps no such limit; what it saves
    between parts does not count.

    The next call notices changed weights; see `bslite.dropin.watch`.

    Raises InputError if ``module`` is not a torch module, ``tune`` is no bool, ``bucket_mb`` is not positive
    or ``memory`` is no number of bytes, EngineError for wrong ``threads`` or ``precision``.
    """
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"optimize() takes a torch.nn.Module, got {type(module).__name__}")
    if fallback not in FALLBACKS:
        raise InputError(f"fallback {fallback!r} is not one of {', '.join(map(repr, FALLBACKS))}")
    check_threads(threads)
    if not isinstance(tune, bool):
        raise InputError(f"tune is {tune!r}, expected True or False")
    if bucket_mb is not None and not bucket_mb > 0:
        raise InputError(f"bucket_mb {bucket_mb!r} is not a positive number")
    if memory is not None and (type(memory) is not int or memory < 0):
        raise InputError(f"memory {memory!r} is not a number of bytes")
    module = original_of(module)
    if isinstance(module, torch.jit.ScriptModule):
        text = f"a {type(module).__name__} has no Python to trace; it is returned as it is"
        if fallback == "error":
            raise UnsupportedError(text)
        if fallback == "warn":
            warnings.warn(text, UserWarning, stacklevel=2)
        return module
    _load()
    wrapped = _wrap(
        module,
        Options(
            fallback,
            tune,
            threads,
            training,
            bucket_mb,
            memory,
            current() if precision is None else precision_of(precision),
        ),
    )
    if example_inputs is not None:
        given = example_inputs if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
        with torch.no_grad():
            runner_of(wrapped)(tuple(given), {})
    return wrapped


@functools.cache
def _load() -> None:
    """Load what the first call of any module needs: torch's exporter, the engine and its kernel of digests.

    It takes half a second, which no call need wait for.
    """
    import torch.export._trace  # noqa: F401

    from bslite.dropin.kept import digest_of
    from bslite.engines import cpu  # noqa: F401

    digest_of(())()


def is_wrapped(module: Any) -> bool:
    """Whether `optimize` made it."""
    return hasattr(type(module), SLOT)


def original_of(module: torch.nn.Module) -> torch.nn.Module:
    """The module that a wrapped module was made from; any other module itself."""
    return runner_of(module).module if is_wrapped(module) else module


def refresh(module: torch.nn.Module) -> None:
    """Make a wrapped module forget its specialisations, after a change of weights that it cannot notice."""
    runner_of(module).forget()


def _explain(module: torch.nn.Module, **options: Any) -> Any:
    """`bslite.explain` of a wrapped module; imported late because a call needs none of it."""
    from bslite.dropin.diagnosis.explaining import explain_module

    return explain_module(module, **options)


def _verified(module: torch.nn.Module, given: Any) -> Any:
    """For `bslite.verify`; imported late because a call needs none of it."""
    from bslite.dropin.diagnosis.verifying import verified

    return verified(module, given)


def _wrap(module: torch.nn.Module, options: Options, forward: Any = None) -> torch.nn.Module:
    wrapped: torch.nn.Module = object.__new__(_class_for(type(module)))  # type: ignore[arg-type]
    object.__setattr__(wrapped, "__dict__", module.__dict__)
    object.__setattr__(wrapped, SLOT, Runner(module, options))
    _put_forward(wrapped, forward)
    return wrapped


def _put_forward(module: torch.nn.Module, forward: Any) -> None:
    object.__setattr__(module, OWN, forward)


class _Forward:
    """The forward of a class of drop-ins. One that is put in its place on a drop-in (by accelerate) is the
    drop-in's alone, not the original's, whose attributes it shares: it calls what was there before.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __get__(self, module: Any, kind: Any = None) -> Any:
        if module is None:
            return self._function
        own = module._bslite_forward
        if own is None:
            own = module.__dict__.get("forward")
        return self._function.__get__(module, kind) if own is None else own

    def __set__(self, module: Any, value: Any) -> None:
        _put_forward(module, value)

    def __delete__(self, module: Any) -> None:
        if module._bslite_forward is not None:
            _put_forward(module, None)
        elif module.__dict__.pop("forward", None) is None:
            raise AttributeError("forward")


@functools.lru_cache(maxsize=256)
def _class_for(kind: Any) -> type[torch.nn.Module]:
    """A subclass of ``kind`` that runs the forward through a `Runner`; it has the same name."""

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():  # Dynamo or export is following: show them the original
            return kind.forward(self, *args, **kwargs)
        return self._bslite_runner(args, kwargs)

    def __new__(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if cls is made and (args or kwargs):
            return kind(*args, **kwargs)  # as a slice of a Sequential makes another one: not wrapped
        return object.__new__(cls)

    def __reduce_ex__(self: Any, protocol: Any) -> Any:
        runner = runner_of(self)
        made = _wrap, (runner.module, runner.options)
        own = self._bslite_forward  # which may hold the drop-in
        return made if own is None else (*made, own, None, None, _put_forward)

    def __deepcopy__(self: Any, memo: dict[int, Any]) -> Any:
        runner = runner_of(self)
        made = memo[id(self)] = _wrap(copy.deepcopy(runner.module, memo), runner.options)
        _put_forward(made, copy.deepcopy(self._bslite_forward, memo))
        return made

    def __copy__(self: Any) -> Any:
        runner = runner_of(self)
        return _wrap(copy.copy(runner.module), runner.options, self._bslite_forward)

    forward.__wrapped__ = kind.forward  # type: ignore[attr-defined]
    forward.__doc__ = kind.forward.__doc__
    scope = {
        "__slots__": (SLOT, OWN),
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
        "__new__": __new__,
        "forward": _Forward(forward),
        "_bslite_explain": _explain,
        "_bslite_verified": _verified,
        "__reduce_ex__": __reduce_ex__,
        "__deepcopy__": __deepcopy__,
        "__copy__": __copy__,
    }
    made: type[torch.nn.Module] = type(kind)(kind.__name__, (kind,), scope)
    return made
