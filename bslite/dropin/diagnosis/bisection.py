"""`bisect`: the first layer whose values depart from the reference, and a small model that reproduces it."""

import copy
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bslite import verification
from bslite.dropin.blueprint import draw
from bslite.dropin.capture import capture
from bslite.dropin.diagnosis.reproducer import Suspect, narrowed, smallest, write
from bslite.dropin.model import NARROW, widened
from bslite.dropin.structure import Structure
from bslite.dropin.tune import run_graph
from bslite.dropin.wrapper import original_of
from bslite.engines.cuda.library import strict
from bslite.errors import BsliteError, InputError
from bslite.frontends.torch.checks import tensors as named_tensors
from bslite.frontends.torch.parts import PartWalk
from bslite.spec import Array, ModelSpec, Node
from bslite.verification import Check, Engine

#: How many times float32's error torch's value may be off the definition before the translation is at fault.
TRANSLATION = 64.0
TOGETHER = 4  # layers that the engine computes in one, at most


@dataclass(frozen=True)
class Bisection:
    """The result of `bisect`. ``str()`` says it in a few lines; ``passed``: no layer departs.

    ``fault``: "engine" if bslite's engine departs from the definition of its ops, "translation" if the ops do
    not compute what torch computes. ``checks``: every layer compared so far, each against the definition in
    float64, in float32, and torch.
    """

    model: str
    layer: str
    op: str
    fault: str
    checks: tuple[Check, ...]
    folder: Path | None
    note: str
    together: tuple[str, ...] = ()  # layers that the engine computes in one with it, and may be at fault

    @property
    def passed(self) -> bool:
        """Whether every layer's answer is as near as float32 allows."""
        return not self.fault

    def __str__(self) -> str:
        if self.passed:
            return f"{self.model}: {len(self.checks)} layers compared, none departs{self.note}"
        found = next((c for c in self.checks if c.name == self.layer), None)
        lines = [f"{self.model}: the first layer that departs is {self.layer} ({self.op}): {self.note}"]
        if self.together:
            lines.append(f"the engine computes it in one with {', '.join(self.together)}")
        if found is not None:
            torch_error = "" if found.torch_error is None else f", torch {found.torch_error:.2e}"
            lines.append(
                f"error {found.error:.2e}, bound {found.bound:.2e} "
                f"(float32 {found.reference_error:.2e}{torch_error})"
            )
        if self.folder is not None:
            lines.append(f"reproduce with: python {self.folder / 'reproduce.py'}")
        return "\n".join(lines)


@torch.autocast("cpu", enabled=False)
def bisect(
    model: torch.nn.Module,
    x: Any,
    *,
    folder: str | Path | None = None,
    threads: int | None = None,
    backend: str | None = None,
) -> Bisection:
    """Compare every layer of ``model`` on ``x``: bslite's engine, the definition of the ops, and torch.

    ``model``: a module in eval mode, or one made by `bslite.optimize`. ``x``: a tensor, or a tuple of the
    forward's positional arguments. ``backend``: "cpu" or "cuda", by default that of the device the tensors
    are on; torch computes where they are, numbers of 16 bits, and under autocast, in float32. The first layer
    that departs is named, and the smallest model found that shows the fault is written to ``folder``
    (``bslite-<layer>`` if not given), with a script that runs it.

    Raises InputError for arguments without a tensor, UnsupportedError for a module that cannot be
    traced, EngineError for a backend that does not exist or cannot run here.
    """
    if not isinstance(model, torch.nn.Module):
        raise InputError(f"bisect() takes a torch.nn.Module, got {type(model).__name__}")
    module = original_of(model)
    args = tuple(x) if isinstance(x, (tuple, list)) else (x,)
    if any(t.dtype in NARROW for t in (*args, *module.parameters()) if isinstance(t, torch.Tensor)):
        module = copy.deepcopy(module).float()  # torch's errors in 16 bits are no faults
        args = torch.utils._pytree.tree_map_only(torch.Tensor, widened, args)
    arguments = Structure((args, {}), lambda v: isinstance(v, torch.Tensor), empty=True)
    inputs: list[torch.Tensor] = [t.detach() for t in arguments.leaves]
    if not inputs:
        raise InputError("bisect() needs a tensor among the arguments")
    engine = verification.engine_for(inputs, backend, threads)
    name = type(module).__name__
    blueprint = draw(capture(module, arguments, name), name)
    tensors = dict(named_tensors(module))
    every = {n for p in blueprint.parts for n in (*p.inputs, *p.nodes)}
    with torch.no_grad(), strict(torch):
        values = run_graph(blueprint, tensors, inputs, every)
    checks: list[Check] = []
    for part in blueprint.parts:
        walk = blueprint.walk(tensors)
        spec = walk.build(part.nodes, part.inputs, part.outputs)
        arrays = [_array(values[n]) for n in part.inputs]
        theirs = _torch_values(walk, values)
        found = _departs(spec, arrays, theirs, engine, checks)
        if found is not None:
            return _written(name, found, checks, folder)
    unseen = f"; {100 * blueprint.torch_share:.1f} % of the flops are torch's and were not compared"
    return Bisection(name, "", "", "", tuple(checks), None, unseen if blueprint.refused else "")


def _array(tensor: torch.Tensor) -> Array:
    array: Array = np.asarray(tensor.detach().cpu().numpy(), order="C")
    return array


def _torch_values(walk: PartWalk, values: dict[torch.fx.Node, Any]) -> dict[str, Array]:
    """Torch's value of each layer, by the layer's name."""
    return {
        name: _array(values[node])
        for name, node in walk.made().items()
        if isinstance(values.get(node), torch.Tensor)
    }


def _departs(
    spec: ModelSpec, inputs: list[Array], theirs: dict[str, Array], engine: Engine, checks: list[Check]
) -> Suspect | None:
    """The first layer of the model that departs; adds all compared layers to ``checks``."""
    ops = {node.name: node.op for node in spec.nodes}
    right: list[str] = []
    for found in verification.check_layers(spec, inputs, engine, theirs):
        checks.append(found)
        name, op = found.name, ops[found.name]
        explained = TRANSLATION * (found.reference_error + verification.TINY)
        if found.torch_error is not None and not found.torch_error <= explained:  # NaN departs, too
            text = f"torch computes something else (relative distance {found.torch_error:.2e})"
            return Suspect(spec, inputs, name, op, "translation", text, right, theirs[name], engine)
        if not found.passed:
            text = "the engine departs from the definition of the op"
            return Suspect(spec, inputs, name, op, "engine", text, right, engine=engine)
        right.append(name)
    return _within_stacks(spec, inputs, engine)


def _within_stacks(spec: ModelSpec, inputs: list[Array], engine: Engine) -> Suspect | None:
    """The first layer that departs if the model is cut off behind it.

    Tracing layers one by one keeps their values, which rules out running them depth-first. Here the model
    runs as usual, cut off behind one layer after another.
    """
    if verification.outputs_pass(spec, inputs, engine):
        return None
    by_name = {i.name: x for i, x in zip(spec.inputs, inputs, strict=True)}

    def departs(last: Node) -> bool:
        cut = narrowed(spec, [last.name])
        return not verification.outputs_pass(cut, [by_name[i.name] for i in cut.inputs], engine)

    node = spec.nodes[bisect_left(spec.nodes[:-1], True, key=departs)]
    text = "it departs when the layers up to it run depth-first, not when it runs alone"
    return Suspect(spec, inputs, node.name, node.op, "engine", text, engine=engine)


def _written(name: str, found: Suspect, checks: list[Check], folder: str | Path | None) -> Bisection:
    small, arrays = smallest(found)
    together = tuple(n.name for n in small.nodes if n.name != found.layer and n.inputs)
    if len(together) > TOGETHER:
        together = ()  # not layers computed in one, but all before it
    try:
        where: Path | None = write(found, small, arrays, folder)
        note = found.reason
    except (BsliteError, OSError) as e:
        where, note = None, f"{found.reason} (no reproduction: {e})"
    return Bisection(name, found.layer, found.op, found.fault, tuple(checks), where, note, together)
