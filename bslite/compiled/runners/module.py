"""A torch module as a compiled model runs it: by the drop-in, with nothing left to torch."""

import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from bslite import api
from bslite.compiled.outputs import Outputs
from bslite.compiled.runners.runner import Options
from bslite.dropin import optimize
from bslite.dropin.place import as_tensor
from bslite.dropin.runner import runner_of
from bslite.errors import InputError, SpecError, UnsupportedError
from bslite.frontends.torch.labels import labelled
from bslite.spec.ports import Port


class ModuleRunner:
    """Specialised on the kinds of inputs that it meets; follows changed weights."""

    def __init__(self, module: torch.nn.Module, options: Options) -> None:
        self.name = type(module).__name__
        if module.training:
            raise SpecError(f"model {self.name!r} is in training mode; call .eval()")
        self.model = optimize(
            module, fallback="error", tune=False, threads=options.threads, precision=options.precision.value
        )
        self._signature = inspect.signature(module.forward)
        given = self._signature.parameters.values()
        self.inputs = tuple(
            Port(p.name, None, "any") for p in given if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        )
        self._counts = _counts(given)
        self._made: list[tuple[str, torch.Size, torch.dtype]] = []  # by the last call

    @property
    def outputs(self) -> tuple[Port, ...]:
        """What the last call gave; none before it."""
        return tuple(Port(name, tuple(s), str(d).removeprefix("torch.")) for name, s, d in self._made)

    def call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Outputs:
        if len(args) == 1 and isinstance(args[0], Mapping):
            args, kwargs = [], {**args[0], **kwargs}
        if kwargs or len(args) not in self._counts:
            self._check(args, kwargs)
        arrays = any(
            not isinstance(x, torch.Tensor) and hasattr(x, "__array__") for x in (*args, *kwargs.values())
        )
        with torch.no_grad():
            made = self.model(*map(as_tensor, args), **{k: as_tensor(v) for k, v in kwargs.items()})
        results = Outputs(_named(made))
        self._made = [(name, y.shape, y.dtype) for name, y in results.items()]
        if not arrays:
            return results
        known = {name: y.float() if y.dtype == torch.bfloat16 else y for name, y in results.items()}
        return Outputs((name, y.numpy()) for name, y in known.items())  # NumPy has no bfloat16

    def _check(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """InputError if these are not the arguments that the module's forward takes."""
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as e:
            raise InputError(f"model {self.name!r}: {e}") from None

    def pieces(self) -> list[str]:
        return ["engine: the whole module"]

    def memory(self) -> dict[str, int]:
        return api.memory(*runner_of(self.model).specs())

    def close(self) -> None:
        runner_of(self.model).forget()


def _counts(parameters: Iterable[inspect.Parameter]) -> range:
    """How many arguments a forward takes where all are given by place; none where one must have its name."""
    placed = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters):
        return range(0)
    any_more = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    return range(sum(p.default is p.empty for p in placed), sys.maxsize if any_more else len(placed) + 1)


def _named(made: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors of a result with their names: keys and places within it, "output" for a single tensor."""
    for name, value in labelled(made):
        if not isinstance(value, torch.Tensor):
            raise UnsupportedError(
                f"the forward returns a {type(value).__name__}; expected tensors, lists and dicts"
            )
        yield name, value
