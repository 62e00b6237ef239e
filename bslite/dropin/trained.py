"""A part of a module in training: a `torch.autograd.Function` whose passes are models.

Weights are inputs of both passes, by address: no packed copy goes stale. torch's tape holds what the forward
pass saves, frees it, and notices when it was changed in place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from bslite.cache import Recent
from bslite.dropin.blocks import Blocks
from bslite.dropin.model import Model
from bslite.errors import UnsupportedError
from bslite.gradients import gradient, weights_as_inputs
from bslite.gradients.split import Halves, split
from bslite.spec import ModelSpec

Tensor = torch.Tensor
MAX_PLANS = 16  # sizes, and choices of what needs a gradient, that are kept
STATS = "batch_stats"


@dataclass(frozen=True)
class Plan:
    """Both passes for tensors of one size. ``seeds``: the outputs whose gradients come from behind."""

    halves: Halves
    forward: Model
    backward: Model
    outputs: int
    seeds: Sequence[int]
    reads: Sequence[int]  # places of the inputs that the backward pass reads
    wrt: Sequence[int]  # places of the inputs that have gradients


class TrainedPart:
    """``part(tensors)`` gives the outputs of ``spec`` as torch's autograd follows them."""

    def __init__(self, spec: ModelSpec, tensors: Mapping[str, Tensor], threads: int | None) -> None:
        """``tensors``: the module's parameters and buffers by name.

        Raises UnsupportedError if a layer has no gradient, takes no weights that are values, or has weights
        that are computed from the module's.
        """
        self.threads = threads
        owned = _owners(spec, tensors)
        self.spec = weights_as_inputs(spec, list(owned))
        self.weights = [owned[key] for key in owned]
        self.inputs = len(spec.inputs)
        self._blocks = Blocks()
        self._plans: Recent[tuple[object, ...], Plan] = Recent(MAX_PLANS)
        self._alone: Model | None = None

    def __call__(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        given = (*tensors, *self.weights)
        if not torch.is_grad_enabled() or not any(t.requires_grad for t in given):
            self._alone = self._alone or Model(self.spec, self.threads)
            return self._alone(given)
        return list(_Step.apply(self.plan(given), *given))

    def check(self) -> None:
        """Raise UnsupportedError if a layer has no gradient."""
        names = [i.name for i in self.spec.inputs if i.dtype == "float32"]
        gradient(self.spec, names, unit=False)

    def plan(self, given: Sequence[Tensor]) -> Plan:
        """Both passes for tensors like these."""
        key = tuple((t.shape, t.requires_grad) for t in given)
        return self._plans.get(key, lambda: self._make(given))

    def _make(self, given: Sequence[Tensor]) -> Plan:
        spec = self.spec
        names = [i.name for i in spec.inputs]
        stats = {node.name for node in spec.nodes if node.op == STATS}
        seeds = [
            i for i, out in enumerate(spec.outputs) if spec.dtypes[out] == "float32" and out not in stats
        ]
        wrt = [i for i, t in enumerate(given) if t.requires_grad and spec.dtypes[names[i]] == "float32"]
        shapes, of = [tuple(t.shape) for t in given], [spec.labels[i] for i in seeds]
        joint = gradient(spec, [names[i] for i in wrt], shapes, of, unit=False)
        halves = split(joint, len(spec.outputs), [f"d/{spec.labels[i]}" for i in seeds])
        cells, empty = [saved.name for saved in halves.saved], self._blocks.tensor
        return Plan(
            halves,
            Model(halves.forward, self.threads, cells, empty),
            Model(halves.backward, self.threads, cells, empty),
            len(spec.outputs),
            seeds,
            [names.index(name) for name in halves.reads],
            wrt,
        )


class _Step(torch.autograd.Function):
    """One forward pass on torch's tape."""

    @staticmethod
    def forward(ctx: Any, plan: Plan, *given: Tensor) -> tuple[Tensor, ...]:
        made = plan.forward(given)
        outputs, saved = made[: plan.outputs], made[plan.outputs :]
        ctx.plan, ctx.count = plan, len(given)
        ctx.save_for_backward(*(given[i] for i in plan.reads), *saved)
        ctx.mark_non_differentiable(*(y for i, y in enumerate(outputs) if i not in plan.seeds))
        return tuple(outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        plan = ctx.plan
        made = plan.backward((*ctx.saved_tensors, *(grads[i] for i in plan.seeds)))
        found: list[Tensor | None] = [None] * ctx.count
        for place, grad in zip(plan.wrt, made, strict=True):
            found[place] = grad
        return (None, *found)


def _owners(spec: ModelSpec, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The module's tensors that the parameters of ``spec`` are, by key."""
    found: dict[str, Tensor] = {}
    lie = {
        (t.data_ptr(), tuple(t.shape), t.stride()): t for t in tensors.values() if t.dtype == torch.float32
    }
    learnt = any(t.requires_grad for t in tensors.values())
    for key, array in spec.params.items():
        if array.dtype != "float32":
            continue
        strides = tuple(s // array.itemsize for s in array.strides)
        tensor = lie.get((array.ctypes.data, array.shape, strides))
        if tensor is not None:
            found[key] = tensor
        elif array.size > 1 and learnt and key in tensors:
            raise UnsupportedError(f"parameter {key!r} is not where the module has it")
    return found
