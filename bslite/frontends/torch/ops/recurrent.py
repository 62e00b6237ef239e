"""Builders of recurrent layers: one op for each layer and direction; its slices are torch's results."""

from collections.abc import Sequence
from typing import Any

from bslite.frontends.common.moves import permute, reshape
from bslite.frontends.common.recurrent import KINDS, stacked
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.common.values import Dims
from bslite.frontends.torch.builders import aten, operation
from bslite.frontends.torch.counting import filled
from bslite.frontends.torch.site import Site
from bslite.frontends.torch.values import Operand, kept_as

ROLES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
CELLS = tuple(f"{kind}_cell" for kind in KINDS)


class Zeros:
    """A state of zeros for a batch of any size: the same as none."""


@aten("zeros")
def zeros(s: Site, *_: Any, **__: Any) -> Zeros | Operand:
    """The state that a recurrent module makes if it is given none, or any other; its size is free."""
    if all(operation(user) in (*KINDS, *CELLS, "bslite.recurrent") for user in s.users):
        return Zeros()
    return filled(s, s.shape, 0, kept_as(s.node.meta["val"]))


def _piece(s: Site, x: Operand, start: int, stop: int, axis: int = 0) -> Operand:
    """``x[start:stop]`` along ``axis``."""
    if (start, stop) == (0, x.shape[axis]):
        return x
    shape = (*x.shape[:axis], stop - start, *x.shape[axis + 1 :])
    return s.emit("slice", x, inner=shape, axis=axis, start=start, stop=stop)


def _drop(s: Site, x: Operand) -> Operand:
    """``x[0]``."""
    return reshape(s, x, tuple(x.shape[1:]), last=False)


def _layer(
    s: Site, kind: str, x: Operand, state: Sequence[Operand], params: Sequence[Operand],
    lengths: Sequence[Operand] = (), **ends: Any,
) -> list[Operand]:  # fmt: skip
    """One layer in one direction: outputs ``[T, N, P]``, then the last states ``[1, N, P or H]``."""
    biased = len(params) > 3  # without biases there are two weights, or three with the projection
    roles = ROLES if biased else (*ROLES[:2], ROLES[4])
    weights = dict(zip(roles, params, strict=False))
    op, attrs = KINDS[kind]
    steps, batch, _ = x.shape
    hidden = weights["weight_ih"].shape[0] // op.gates
    ends |= {"initial_state": bool(state), "lengths": bool(lengths)}
    shape: Dims = (steps + op.states, batch, hidden)
    y = s.emit(op.name, x, *state, *lengths, inner=shape, params=weights, **attrs, **ends)
    h = _piece(s, y, 0, weights["weight_hh"].shape[1], axis=2)
    made: list[Operand] = []
    for i, source in enumerate((h, h, y)[: 1 + op.states]):
        start, stop = op.span(i)
        shape = (1 if i else steps, *source.shape[1:])
        made.append(s.emit("slice", source, inner=shape, axis=0, start=start, stop=stop))
    return made


def _given(s: Site, state: Any) -> list[Operand]:
    """The initial states, none of them if they are zeros."""
    states = list(state) if isinstance(state, (list, tuple)) else [state]
    if all(isinstance(x, Zeros) for x in states):
        return []
    if any(isinstance(x, Zeros) for x in states):
        raise Unsupported("one of its initial states is zeros of the batch's size, the other is not")
    return states


@aten(*(f"{name}.input" for name in KINDS))
def recurrent(
    s: Site, x: Operand, state: Any, params: Sequence[Operand], has_biases: bool, layers: int, dropout: float,
    train: bool, bidirectional: bool, batch_first: bool,
) -> list[Operand]:  # fmt: skip
    if train and dropout:
        raise Unsupported("called with train=True and dropout")
    if batch_first:
        x = permute(s, x, (1, 0, 2), last=False)
    x, *ends = _stack(s, s.operation, x, _given(s, state), (), params, layers, bidirectional)
    return [permute(s, x, (1, 0, 2), last=False) if batch_first else x, *ends]


@aten("bslite.recurrent")
def packed(
    s: Site, kind: str, x: Operand, lengths: Operand, state: Any, params: Sequence[Operand], biased: bool,
    layers: int, bidirectional: bool,
) -> list[Operand]:  # fmt: skip
    """Over packed sequences, which come padded; see `bslite.frontends.torch.packed`."""
    return _stack(s, kind, x, _given(s, state), (lengths,), params, layers, bidirectional)


@aten("bslite.lengths")
def lengths(
    s: Site, lengths: Operand, x: Operand, in_order: bool, longest: int | None, whole: bool
) -> Operand:
    return s.emit("sequence_lengths", lengths, x, sorted=in_order, longest=longest, whole=whole)


def _stack(
    s: Site, kind: str, x: Operand, given: Sequence[Operand], lengths: Sequence[Operand],
    params: Sequence[Operand], layers: int, bidirectional: bool,
) -> list[Operand]:  # fmt: skip
    """All layers and directions: outputs of the last layer ``[T, N, ...]``, last states of all."""
    directions = 1 + bidirectional
    each = len(params) // (layers * directions)

    def made(x: Operand, layer: int, d: int) -> list[Operand]:
        i = layer * directions + d
        before = [_drop(s, _piece(s, part, i, i + 1)) for part in given]
        return _layer(s, kind, x, before, params[i * each : (i + 1) * each], lengths, reverse=bool(d))

    def join(parts: list[Operand], axis: int, _: str = "") -> Operand:
        return _joined(s, parts, axis)

    x, ends = stacked(x, layers, directions, made, join)
    return [x, *(_joined(s, parts, 0) for parts in ends)]


def _joined(s: Site, parts: list[Operand], axis: int) -> Operand:
    if len(parts) == 1:
        return parts[0]
    shape = list(parts[0].shape)
    shape[axis] = sum(p.shape[axis] for p in parts)
    return s.emit("concat", *parts, inner=tuple(shape), axis=axis)


@aten(*CELLS)
def cell(s: Site, x: Operand, state: Any, *params: Operand) -> Any:
    kind = s.operation.removesuffix("_cell")
    line = reshape(s, x, (1, *x.shape), last=False)
    made = _layer(s, kind, line, _given(s, state), [p for p in params if p is not None])
    results = [_drop(s, part) for part in made[1:]]
    return results if kind == "lstm" else results[0]
