"""A part of a module in training: a `torch.autograd.Function` whose passes are models.

Weights are inputs of both passes, by address: no packed copy goes stale. torch's tape holds what the forward
pass saves, frees it, and notices when it was changed in place.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bslite.cache import Recent
from bslite.dropin.model import Model, tensors_of
from bslite.dropin.training.again import Again
from bslite.dropin.training.stepping import Peer, seconds
from bslite.dropin.tune import MARGIN
from bslite.engines.cpu.blocks import Blocks
from bslite.errors import BsliteError, EngineError, UnsupportedError
from bslite.frontends.torch.training import note
from bslite.gradients import gradient, weights_as_inputs
from bslite.gradients.split import Halves, split
from bslite.gradients.transform import passes
from bslite.spec import ModelSpec

Tensor = torch.Tensor
MAX_PLANS = 16  # sizes, and choices of what needs a gradient, that are kept
STATS = "batch_stats"
LEAST = 1 << 16  # cells: too many smaller ones are in use at once for the allocator to keep their memory


@dataclass(frozen=True)
class Plan:
    """Both passes for tensors of one size. ``seeds``: the outputs whose gradients come from behind."""

    halves: Halves
    forward: Model
    backward: Model
    outputs: int
    weights: int
    seeds: Sequence[int]
    reads: Sequence[int]  # places of the inputs that the backward pass reads
    wrt: Sequence[int]  # places of the inputs that have gradients
    reached: Sequence[frozenset[int]]  # the outputs that each of these depends on


@dataclass(frozen=True)
class Note:
    """An output of a part that is the statistics of a batch, and the running ones that they go into."""

    place: int
    mean: Tensor
    var: Tensor
    momentum: float
    count: int


class TrainedPart:
    """``part(tensors)`` gives the outputs of ``spec`` as torch's autograd follows them."""

    def __init__(
        self,
        spec: ModelSpec,
        tensors: Mapping[str, Tensor],
        threads: int | None,
        followed: Sequence[bool],
        peer: Peer,
        tune: bool = True,
        memory: int | None = None,
    ) -> None:
        """``tensors``: the module's parameters and buffers by name. ``followed``: for each output whether a
        gradient may come from behind. ``peer``: the part in torch, for second derivatives and, with ``tune``,
        to measure the part against at its first call and to run if it is faster. ``memory``: bytes that saved
        values may take.

        Raises UnsupportedError if a layer takes no weights that are values, or has weights that are computed
        from the module's.
        """
        self.threads, self.peer, self.memory = threads, peer, memory
        self._measures = tune
        self.seconds: tuple[float, float] | None = None  # measured, of both passes: bslite's, torch's
        labels = (f"{label}#{i}" for i, label in enumerate(spec.labels))  # each of them another
        spec = spec.replace(labels=tuple(labels))
        owned = _owners(spec, tensors)
        self.spec = weights_as_inputs(spec, list(owned))
        self.weights = [owned[key] for key in owned]
        self.notes: list[Note] = []
        stats = {node.name for node in self.spec.nodes if node.op == STATS}
        self._seeds = [
            i
            for i, out in enumerate(self.spec.outputs)
            if followed[i] and self.spec.dtypes[out] == "float32" and out not in stats
        ]
        self._empty = tensors_of(Blocks(LEAST))
        self._plans: Recent[tuple[object, ...], Plan | None] = Recent(MAX_PLANS)
        self._alone: Model | None = None

    def __call__(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        given = (*tensors, *self.weights)
        taped = torch.is_grad_enabled() and bool(self._seeds) and any(t.requires_grad for t in given)
        plan = self.plan(given) if taped and not self.slower else None
        if plan is not None and self._measures and self.seconds is None:
            ours = self._taped, self.weights
            self.seconds = seconds(ours, (self.peer.run, self.peer.weights), tensors)
        if self.slower:
            return self.noted(list(self.peer.run(tensors, self.peer.weights)))
        if plan is not None:
            return list(_Step.apply(self.notes, plan, self.peer, *given))
        self._alone = self._alone or Model(self.spec, self.threads)
        return self.noted(self._alone(given))

    @property
    def halves(self) -> Halves | None:
        """Both passes of the call before, or of one before it."""
        plans = [plan for plan in self._plans.values() if plan is not None]
        return plans[-1].halves if plans else None

    @property
    def slower(self) -> bool:
        """Whether it has been measured, and torch runs it faster."""
        return self.seconds is not None and self.seconds[0] > MARGIN * self.seconds[1]

    def _taped(self, tensors: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
        """Both passes with other weights; no statistics are noted."""
        given = (*tensors, *weights)
        plan = self.plan(given)
        assert plan is not None
        return list(_Step.apply((), plan, self.peer, *given))

    def noted(self, made: list[Tensor]) -> list[Tensor]:
        """What a pass made, its statistics put into the running ones."""
        _note(self.notes, made)
        return made

    def plan(self, given: Sequence[Tensor]) -> Plan | None:
        """Both passes for tensors like these; None if no output depends on what needs a gradient."""
        key = tuple((t.shape, t.requires_grad) for t in given)
        return self._plans.get(key, lambda: self._make(given))

    def _make(self, given: Sequence[Tensor]) -> Plan | None:
        spec, names = self.spec, [i.name for i in self.spec.inputs]
        wrt = [i for i, t in enumerate(given) if t.requires_grad and spec.dtypes[names[i]] == "float32"]
        moves = _depends(spec, {names[i] for i in wrt})
        seeds = [i for i in self._seeds if spec.outputs[i] in moves]
        if not seeds:
            return None
        shapes, of = [tuple(t.shape) for t in given], [spec.labels[i] for i in seeds]
        joint = gradient(spec, [names[i] for i in wrt], shapes, of, unit=False)
        behind = [f"d/{label}" for label in of]
        halves = split(joint, len(spec.outputs), behind, memory=self.memory)
        cells, empty = [saved.name for saved in halves.saved], self._empty
        return Plan(
            halves,
            Model(halves.forward, self.threads, cells, empty, len(spec.outputs)),
            Model(halves.backward, self.threads, cells, empty),
            len(spec.outputs),
            len(self.weights),
            seeds,
            [names.index(name) for name in halves.reads],
            wrt,
            _reached(spec, seeds, [names[i] for i in wrt]),
        )


class _Step(torch.autograd.Function):
    """One forward pass on torch's tape."""

    @staticmethod
    def forward(
        ctx: Any, notes: Sequence[Note], plan: Plan, peer: Peer, *given: Tensor
    ) -> tuple[Tensor, ...]:
        made = plan.forward(given)
        _note(notes, made)
        outputs, saved = made[: plan.outputs], made[plan.outputs :]
        ctx.plan, ctx.again = plan, Again.of(peer, given, plan.weights, plan.reads)
        ctx.save_for_backward(*(given[i] for i in plan.reads), *saved)
        ctx.mark_non_differentiable(*(y for i, y in enumerate(outputs) if i not in plan.seeds))
        ctx.set_materialize_grads(False)  # what has no gradient from behind is no zero to an optimizer
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        plan: Plan = ctx.plan
        come = {i: grad for i in plan.seeds if (grad := grads[i]) is not None}
        found: list[Tensor | None] = [None] * ctx.again.count
        if torch.is_grad_enabled() or any(map(_is_batch, come.values())):  # create_graph, is_grads_batched
            reads = dict(zip(plan.reads, ctx.saved_tensors, strict=False))
            made = ctx.again.gradients(reads, come, plan.wrt)
        else:
            behind = plan.halves.backward.inputs[-len(plan.seeds) :]
            seeds = [
                come[i] if i in come else torch.zeros(own.example)
                for i, own in zip(plan.seeds, behind, strict=True)
            ]
            made = _backward(plan, ctx.saved_tensors, seeds)
            made = [grad if own & come.keys() else None for grad, own in zip(made, plan.reached, strict=True)]
        for place, grad in zip(plan.wrt, made, strict=True):
            found[place] = grad
        return (None, None, None, *found)


def _backward(plan: Plan, saved: Sequence[Tensor], seeds: Sequence[Tensor]) -> Sequence[Tensor]:
    with torch.no_grad():
        try:
            return plan.backward((*saved, *seeds))
        except BsliteError as e:
            raise EngineError(f"bslite failed in a backward pass, after its forward pass: {e}") from e


def _note(notes: Sequence[Note], made: Sequence[Tensor]) -> None:
    for own in notes:
        note(own.mean, own.var, made[own.place], own.momentum, own.count)


def _is_batch(grad: Tensor) -> bool:
    """Whether a gradient stands for a batch of them, one for each of many backward passes at once."""
    functorch = torch._C._functorch
    return functorch.is_functorch_wrapped_tensor(grad) or functorch.is_legacy_batchedtensor(grad)


def _depends(spec: ModelSpec, names: set[str]) -> set[str]:
    """The values through which gradients of ``names`` go."""
    found = set(names)
    for node in spec.nodes:
        if passes(spec, node) and not found.isdisjoint(node.inputs):
            found.add(node.name)
    return found


def _reached(spec: ModelSpec, seeds: Sequence[int], names: Sequence[str]) -> list[frozenset[int]]:
    """The outputs of ``seeds`` from which a gradient goes to each of ``names``: a zero where it is zero, as
    that of what is rounded, which is not None to an optimizer.
    """
    found: defaultdict[str, set[int]] = defaultdict(set)
    for i in seeds:
        found[spec.outputs[i]].add(i)
    for node in reversed(spec.nodes):
        if node.name in found and passes(spec, node):
            for name in node.inputs:
                found[name] |= found[node.name]
    return [frozenset(found[name]) for name in names]


def _owners(spec: ModelSpec, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The module's tensors that the parameters of ``spec`` are, by key.

    Raises UnsupportedError for one that is not where the module has it, or where another that learns is, too:
    a model has them for one, and each has a gradient of its own.
    """
    found: dict[str, Tensor] = {}
    lie: dict[tuple[object, ...], list[Tensor]] = {}
    for t in {id(t): t for t in tensors.values() if t.dtype == torch.float32}.values():
        lie.setdefault((t.data_ptr(), tuple(t.shape), t.stride()), []).append(t)
    learnt = any(t.requires_grad for t in tensors.values())
    for key, array in spec.params.items():
        if array.dtype != "float32":
            continue
        strides = tuple(s // array.itemsize for s in array.strides)
        there = lie.get((array.ctypes.data, array.shape, strides), ())
        if len(there) > 1 and any(t.requires_grad for t in there):
            raise UnsupportedError(f"parameter {key!r} shares its memory with another")
        if there:
            found[key] = there[0]
        elif array.size > 1 and learnt and key in tensors:
            raise UnsupportedError(f"parameter {key!r} is not where the module has it")
    return found
