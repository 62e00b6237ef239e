"""One rule per family of ops: where the time steps lie in its output, or why it mixes them.

A rule proves that step t of the output depends only on step t of the inputs and on held inputs. An op without
a rule does not stream, unless it is pointwise.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bslite import ops
from bslite.ops import Kind, Shape
from bslite.ops.pointwise import IDENTITIES
from bslite.ops.reduce import Reduction, reduced_axes
from bslite.registry import Registry
from bslite.spec import Node
from bslite.streaming.places import Held, Last, Place, Rows, Steps, reshaped

RECURRENT = ("lstm", "gru", "rnn")


class Mixes(Exception):
    """The op does not keep time steps apart; the message says why."""


@dataclass
class At:
    """An op at its place: shapes for ``steps`` time steps, and places of its inputs.

    ``attrs``: attributes the node needs instead, so that it works for any number of steps.
    """

    node: Node
    steps: int
    ins: Sequence[Shape]
    out: Shape
    places: Sequence[Place]
    attrs: dict[str, Any] = field(default_factory=dict)

    @property
    def only(self) -> Steps:
        """The place of input 0, where all others must be held."""
        first, *others = self.places
        if any(not isinstance(p, Held) for p in others):
            raise Mixes("more than its first input depends on the sequence")
        if not isinstance(first, Steps):
            raise Mixes("it reads outputs and last state of a recurrent layer together")
        return first

    @property
    def axis(self) -> int:
        """The axis of input 0 that the op works along."""
        return int(self.node.attrs["axis"]) % len(self.ins[0])


Rule = Callable[[At], Place]
RULES: Registry[Rule] = Registry("streaming rule")
rule = RULES.register


def place_of(at: At) -> Place:
    """The place of the output's steps. Raises Mixes."""
    if all(isinstance(p, Held) for p in at.places):
        if at.node.op in RECURRENT:
            raise Mixes("it runs over something that is not the sequence")
        return Held()
    if all(isinstance(p, (Held, Last)) for p in at.places):
        if at.node.op in RECURRENT:
            raise Mixes("it runs over something computed from the whole sequence")
        return Last()
    declared = ops.get(at.node.op)
    found = RULES.get(at.node.op)
    if found is None and declared.kind is Kind.POINTWISE:
        found = pointwise
    if found is None:
        raise Mixes("bslite cannot show that it keeps the time steps apart")
    return found(at)


@rule(*RECURRENT)
def recurrent(at: At) -> Place:
    x, *rest = at.places
    if at.node.attrs["reverse"]:
        raise Mixes("it goes through the sequence backwards (a bidirectional layer needs all of it first)")
    if at.node.attrs["lengths"]:
        raise Mixes("it takes lengths: give each stream a session, or end it and reset")
    if x != Steps(0):
        raise Mixes("its time axis is not the sequence's")
    if not all(isinstance(p, Held) for p in rest):
        raise Mixes("it starts from a state that is computed from the sequence")
    return Rows(ops.get(at.node.op).states)  # type: ignore[attr-defined]


def pointwise(at: At) -> Place:
    """Inputs broadcast element by element, so a step must meet the same step."""
    rank = len(at.out)
    found: set[Steps] = set()
    for place, shape in zip(at.places, at.ins, strict=True):
        if isinstance(place, Rows):
            raise Mixes("it reads outputs and last state of a recurrent layer together")
        if isinstance(place, Last):
            raise Mixes("every step would depend on the last one")
        if isinstance(place, Steps):
            found.add(Steps(place.axis + rank - len(shape), place.before, place.after))
    if len(found) > 1:
        raise Mixes("the steps of its inputs lie along different axes")
    (steps,) = found
    for place, shape in zip(at.places, at.ins, strict=True):
        axis = steps.axis - (rank - len(shape))
        if isinstance(place, Held) and axis >= 0 and shape[axis] != 1:
            raise Mixes(f"it takes other values for each of {at.steps} steps (positions)")
    return steps


@rule("complex_mul")
def complex_mul(at: At) -> Place:
    """Pairs of parts broadcast; the parts are no steps."""
    place = pointwise(at)
    if place == Steps(len(at.out) - 1):
        raise Mixes("its complex numbers are pairs of time steps")
    return place


def keeps(*names: str, over: Callable[[At], Iterable[int]] = lambda at: (), why: str = "") -> None:
    """A rule: the steps stay where they are, unless they lie along one of the axes that the op works over."""

    def of(at: At) -> Place:
        if at.only.axis in over(at):
            raise Mixes(why)
        return at.only

    rule(*names)(of)


def normalized(at: At) -> range:
    rank = len(at.ins[0])
    return range(rank - len(at.node.attrs["normalized_shape"]), rank)


keeps(*IDENTITIES)
keeps("linear", "block_linear", over=lambda at: (len(at.ins[0]) - 1,), why="its features are the time steps")
keeps("batch_norm", "lrn", over=lambda at: (1,), why="its channels are the time steps")
keeps("layer_norm", "rms_norm", over=normalized, why="it normalises over time")
keeps("softmax", "log_softmax", "normalize", over=lambda at: (at.axis,), why="it normalises over time")
keeps("fourier", over=lambda at: (at.axis,), why="it transforms time")
keeps("cumsum", "topk", over=lambda at: (at.axis,), why="it goes along time")


@rule("gather")
def gather(at: At) -> Place:
    table, indices = at.places
    axis = at.axis
    if isinstance(table, Held) and isinstance(indices, Steps):  # an embedding
        return Steps(axis + indices.axis, indices.before, indices.after)
    if isinstance(table, Steps) and isinstance(indices, Held) and table.axis != axis:
        moved = table.axis if table.axis < axis else table.axis + len(at.ins[1]) - 1
        return Steps(moved, table.before, table.after)
    raise Mixes("it picks from the time steps")


@rule("one_hot")
def one_hot(at: At) -> Place:
    steps, axis = at.only, at.node.attrs["axis"] % (len(at.ins[0]) + 1)
    return Steps(steps.axis + (axis <= steps.axis), steps.before, steps.after)


@rule("matmul")
def matmul(at: At) -> Place:
    """Time may be a batch axis of both inputs, or a row axis beside a held matrix."""
    x, y = at.places
    if isinstance(x, Steps) and isinstance(y, Held):
        if x.axis == len(at.ins[0]) - 1:
            raise Mixes("it sums over time")
        if x.axis == len(at.ins[0]) - 2:
            return Steps(x.axis + len(at.out) - len(at.ins[0]), x.before, x.after)
    for place, shape in zip(at.places, at.ins, strict=True):
        if isinstance(place, Steps) and place.axis >= len(shape) - 2:
            raise Mixes("its matrices reach over time")
    return pointwise(at)


@rule("conv1d", "conv2d", "conv3d")
def window_of_one(at: At) -> Place:
    """A window streams if it is one step long and moves by one step."""
    steps, attrs = at.only, at.node.attrs
    if steps.axis < 1:
        return steps
    if steps.axis == 1:
        raise Mixes("its channels are the time steps")
    i, axes = steps.axis - 2, len(at.out) - 2
    kernel_one = at.out[steps.axis] == at.ins[0][steps.axis] and attrs["stride"][i] == 1
    if not kernel_one or any(attrs["padding"][i::axes]):
        raise Mixes("its windows reach over several time steps")
    return steps


@rule(*(name for name, op in ops.REGISTRY.items() if isinstance(op, Reduction)))
def reduction(at: At) -> Place:
    return _without(at, reduced_axes(at.node.op, at.node.attrs["axes"], len(at.ins[0])))


@rule("argmax", "argmin")
def extreme(at: At) -> Place:
    return _without(at, (at.axis,))


def _without(at: At, axes: Sequence[int]) -> Place:
    steps = at.only
    if steps.axis in axes:
        raise Mixes("it reduces over time")
    gone = 0 if at.node.attrs["keepdim"] else sum(axis < steps.axis for axis in axes)
    return Steps(steps.axis - gone, steps.before, steps.after)


@rule("concat")
def concat(at: At) -> Place:
    axis, found = at.axis, set(at.places)
    if len(found) == 1 and isinstance(at.places[0], Steps) and at.places[0].axis != axis:
        return at.places[0]
    if any(isinstance(p, Steps) and p.axis == axis for p in found):
        raise Mixes("it joins along time")
    raise Mixes("it joins steps with what is no sequence, or has its steps elsewhere")


@rule("permute")
def permute(at: At) -> Place:
    steps = at.only
    return Steps(at.node.attrs["order"].index(steps.axis), steps.before, steps.after)


@rule("reshape", "flatten")
def reshape(at: At) -> Place:
    found = reshaped(at.only, at.ins[0], at.out, at.steps)
    if found is None:
        raise Mixes(f"it cuts the time axis up: {list(at.ins[0])} to {list(at.out)}")
    return found


@rule("expand")
def expand(at: At) -> Place:
    steps = at.only
    return Steps(steps.axis + len(at.out) - len(at.ins[0]), steps.before, steps.after)


@rule("repeat_batch")
def repeat_batch(at: At) -> Place:
    """The op reads only the size of axis 0 of its second input."""
    x, like = at.places
    if isinstance(like, Rows) or (isinstance(like, Steps) and like.axis == 0):
        raise Mixes("it repeats along time")
    return x


@rule("pad")
def pad(at: At) -> Place:
    if at.out[at.only.axis] != at.ins[0][at.only.axis]:
        raise Mixes("it pads along time")
    return at.only


@rule("slice")
def part(at: At) -> Place:
    place, attrs, axis = at.places[0], at.node.attrs, at.axis
    size = at.ins[0][axis]
    wanted = range(*slice(attrs["start"], attrs["stop"], attrs["step"]).indices(size))
    if isinstance(place, Rows):
        if axis != 0:
            return place
        return _rows(at, place, wanted)
    steps = at.only
    if axis != steps.axis:
        return steps
    if wanted == range(size):
        at.attrs = {"axis": axis, "start": 0, "stop": None}
        return steps
    if wanted == range(size - 1, size) and (steps.before, steps.after) == (1, 1):
        at.attrs = {"axis": axis, "start": -1, "stop": None}
        return Last()
    raise Mixes(f"it takes {_words(wanted)} of {size} time steps")


def _rows(at: At, place: Rows, wanted: range) -> Place:
    """A slice of outputs and last state."""
    rows = at.steps + place.states
    if wanted == range(at.steps):
        at.attrs = {"axis": 0, "start": 0, "stop": -place.states}
        return Steps(0)
    if wanted.step == 1 and at.steps - 1 <= wanted.start and (wanted.start >= at.steps or len(wanted) == 1):
        at.attrs = {"axis": 0, "start": wanted.start - rows, "stop": (wanted.stop - rows) or None}
        return Last()
    raise Mixes(f"it takes {_words(wanted)} of {at.steps} time steps")


def _words(wanted: range) -> str:
    if len(wanted) == 1:
        return f"step {wanted[0]}"
    return f"steps {wanted.start}:{wanted.stop}:{wanted.step}"
