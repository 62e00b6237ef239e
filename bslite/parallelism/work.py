"""One request's items of work on one thread: how long each runs, what it waits for, what it moves.

The plan is the one for as many threads as asked, which has items for all of them; one thread runs it, so
nothing else takes part in the times. That needs no more cores than one.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bslite.explanation.data.profile import profile
from bslite.machine import Machine
from bslite.plan.core.views import contiguous
from bslite.plan.cpu.step import CpuPlan, CpuStep
from bslite.spec import Array, ModelSpec

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
RUNS = 3


@dataclass(frozen=True)
class Work:
    """``seconds`` of each item, those of a step after those of the step before; step s has the items from
    ``first[s]`` to ``first[s + 1]`` and starts when the first ``after[s]`` steps are done.

    ``gap``: seconds between two items of a thread. ``call``: seconds of a request outside its items.
    ``moved`` and ``weights``: bytes of values and of parameters that an item of each step reads and writes.
    ``held`` and ``parameters``: bytes of values between layers, and of all parameters. ``threads``: those
    that the plan is for, which may be fewer than were asked for.
    """

    batch: int
    threads: int
    after: Ints
    first: Ints
    seconds: Floats
    gap: float
    call: float
    moved: Floats
    weights: Floats
    held: int
    parameters: int

    @property
    def total(self) -> float:
        """Seconds of a request on one thread."""
        return self.call + float(self.seconds.sum()) + self.gap * len(self.seconds)

    def lasting(self, seconds: float) -> "Work":
        """The same, with all times stretched so that a request on one thread takes ``seconds``."""
        by = seconds / self.total
        return dataclasses.replace(self, seconds=by * self.seconds, gap=by * self.gap, call=by * self.call)

    def bytes_per_item(self, streams: int, l3: int) -> Floats:
        """Bytes that an item of each step moves to or from memory, with so many requests at once.

        Parameters come from memory where all that is in use exceeds L3, since each is last used a whole
        request ago; values, which are read soon after they are written, where they alone exceed it.
        """
        values = streams * self.held
        some = self.weights if self.parameters + values > l3 else np.zeros_like(self.weights)
        return some + (self.moved if values > l3 else 0.0)


class Alone:
    """A plan for the threads of ``machine``, made ready to run on one. Raises what `bslite.run` does."""

    def __init__(self, spec: ModelSpec, inputs: Sequence[Array], machine: Machine) -> None:
        from bslite.api import as_arrays
        from bslite.engines.common.cells import inputs_to_cells
        from bslite.engines.cpu import engine_for
        from bslite.engines.cpu.session import Session
        from bslite.plan import build_plan

        self.engine = engine_for(spec)
        self.cells = inputs_to_cells(spec, as_arrays(spec, list(inputs))[0])
        shapes = [x.shape for x in self.cells]
        strides = [contiguous(s) for s in shapes]
        self.plan = build_plan(self.engine.spec, shapes, machine, input_strides=strides)
        plan = dataclasses.replace(self.plan, threads=1)
        self.session = Session(plan, self.engine.constant, memory=self.engine.memory)

    def __call__(self) -> None:
        """One run, whose results nobody takes."""
        self.session.run(self.cells, [np.empty(view.shape, np.float32) for view in self.plan.outputs])


def work_of(spec: ModelSpec, inputs: Sequence[Array], machine: Machine, runs: int = RUNS) -> Work:
    """Plan for ``machine`` (its number of threads) and run on one thread: medians of traced runs.

    The first of the inputs' sizes counts as the batch. Raises what `bslite.run` does.
    """
    alone = Alone(spec, inputs, machine)
    return traced(alone, inputs[0].shape[0] if inputs and inputs[0].ndim else 1, runs)


def traced(alone: Alone, batch: int, runs: int = RUNS) -> Work:
    """The work of a plan, by traced runs on one thread."""
    plan, timing = alone.plan, profile(alone.session, alone.cells, runs)
    items, count = timing.items, np.array([s.items for s in plan.steps], np.int64)
    first = np.concatenate([[0], np.cumsum(count)])
    seconds = np.zeros(int(first[-1]))
    seconds[first[items.step] + items.item] = items.stop - items.start
    wall = float(items.stop.max(initial=0.0))
    whole = min(1.0, timing.untraced / wall) if wall else 1.0  # the trace itself takes some time
    seconds *= whole
    gap = max(0.0, whole * wall - float(seconds.sum())) / max(1, len(seconds))
    sizes = {key: array.nbytes for key, array in alone.engine.spec.params.items()}
    per = np.maximum(count, 1)
    return Work(
        batch,
        plan.threads,
        np.array([s.after for s in plan.steps], np.int64),
        first,
        seconds,
        gap,
        max(0.0, timing.untraced - whole * wall),
        np.array([_moved(s) for s in plan.steps], float) / per,
        np.array([_weights(plan, s, sizes) for s in plan.steps], float) / per,
        4 * (plan.arena_size + plan.threads * plan.scratch_size),
        sum(sizes.values()),
    )


def _moved(step: CpuStep) -> int:
    """Bytes of values that a step reads and writes."""
    return sum(4 * (a.hi - a.lo) * (a.last - a.first) // a.period for a in (*step.reads, *step.writes))


def _weights(plan: CpuPlan, step: CpuStep, sizes: dict[str, int]) -> int:
    """Bytes of the parameters that a step reads, once each."""
    if step.inner is not None:
        keys = {key for inner in step.plans for const in inner.consts.values() for key in const.keys}
    else:
        used = [plan.consts[o.buffer] for o in step.operands.values() if o.buffer in plan.consts]
        keys = {key for const in used for key in const.keys}
    return sum(sizes.get(key, 0) for key in keys)


def machine_for(threads: int, like: Machine) -> Machine:
    """``like`` with another number of threads, of which nothing was measured."""
    return dataclasses.replace(like, threads=threads, measured=None)


def inputs_of(model: Any, batch: int | None) -> tuple[ModelSpec, list[Array]]:
    """A ModelSpec and random inputs of a batch; of a model's own batch size if None.

    Raises UnsupportedError for a model that runs in several pieces, InputError if it takes no such batch.
    """
    from bslite.api import settled
    from bslite.errors import InputError, UnsupportedError
    from bslite.spec.open import OpenModel

    if isinstance(model, OpenModel):
        given = model.example({}, batch)
    else:
        rng = np.random.default_rng(0)
        given = [i.draw(rng, _shape(i.shape, i.example, batch)) for i in model.inputs]
    found = settled(model, given)
    if found is None:
        raise UnsupportedError(
            f"model {model.name!r} runs in several pieces, which cannot be tuned together; "
            "tune the parts, or see bslite info"
        )
    spec, inputs = found
    if batch is not None and inputs and inputs[0].shape[:1] != (batch,):
        raise InputError(
            f"model {model.name!r} takes inputs of {list(inputs[0].shape)} and no batch of {batch}"
        )
    return spec, inputs


def _shape(declared: Sequence[int | str], example: Sequence[int], batch: int | None) -> tuple[int, ...]:
    """The example's sizes, with the batch where the first size is free."""
    if batch is None or not declared or not isinstance(declared[0], str):
        return tuple(example)
    return tuple(batch if d == declared[0] else n for d, n in zip(declared, example, strict=True))
