"""What `bslite.verify` compares of a wrapped module: bslite's model, its inputs, torch's results."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from bslite.dropin import casting
from bslite.dropin.blueprint import Blueprint
from bslite.dropin.model import widened
from bslite.dropin.place import as_tensor
from bslite.dropin.runner import runner_of
from bslite.dropin.signature import signature
from bslite.dropin.structure import counted
from bslite.dropin.tune import run_graph
from bslite.errors import InputError
from bslite.frontends.torch.checks import tensors as named_tensors
from bslite.spec import ModelSpec

Tensor = torch.Tensor


def verified(module: Any, given: Any) -> tuple[ModelSpec, list[Tensor], Callable[..., list[Tensor]]]:
    """What `_verified` gives, under the caller's autocast."""
    with casting.aside(casting.around()):
        return _verified(module, given)


def _verified(module: Any, given: Any) -> tuple[ModelSpec, list[Tensor], Callable[..., list[Tensor]]]:
    """The model that a call computes, its inputs, and a function that gives its outputs by torch.

    ``given``: the forward's arguments, one, a list of them or a dict by name. Raises InputError if bslite
    does not run the module as one model, and what the call raises.
    """
    args: tuple[Any, ...] = (given,)
    kwargs: dict[str, Any] = {}
    if isinstance(given, (list, tuple)):
        args = tuple(given)
    elif isinstance(given, Mapping):
        args, kwargs = (), dict(given)
    runner = runner_of(module)
    args = tuple(map(as_tensor, args))
    kwargs = {key: as_tensor(value) for key, value in kwargs.items()}
    with torch.no_grad():
        module(*args, **kwargs)
    _, tensors, objects = signature(args, kwargs)
    blueprint = runner.kind_of(args, kwargs, tensors, objects).blueprint
    parts = blueprint.in_bslite if isinstance(blueprint, Blueprint) and not blueprint.torch_share else []
    graph = blueprint.capture.graph if isinstance(blueprint, Blueprint) else None
    taken = [n for n in graph.nodes if n.op == "placeholder" and n not in graph.stored] if graph else []
    if len(parts) != 1 or not set(parts[0].inputs) <= set(taken):
        raise InputError(
            f"verify() checks a module that bslite runs as one model; {runner.name!r} it does not, see "
            "bslite.report; bslite.bisect checks each of its parts"
        )
    assert isinstance(blueprint, Blueprint)
    tensors = [*tensors, *counted(objects, blueprint.capture.counters)]
    (part,) = parts
    held = dict(named_tensors(runner.module))
    values: dict[Any, Any] = {}

    def theirs(*_: Tensor) -> list[Tensor]:
        with casting.aside(casting.around()):
            values.update(values or run_graph(blueprint, held, tensors, part.outputs))
        return [widened(values[node]) for node in part.outputs]

    given = [widened(tensors[taken.index(n)]) for n in part.inputs]
    return blueprint.spec(part, held), given, theirs
