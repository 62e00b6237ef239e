"""Builders of recurrent layers: an op for each layer and direction, slices of it for what torch returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.common.values import Dims
from bslite.frontends.torch.builders import aten, operation
from bslite.frontends.torch.ops.moves import reshape
from bslite.frontends.torch.site import Site
from bslite.frontends.torch.values import Operand

ROLES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
CELLS = tuple(f"{name}_cell" for name in RECURRENT)


class Zeros:
    """A state of zeros for a batch of any size: the same as none."""


@aten("zeros")
def zeros(s: Site, *_: Any, **__: Any) -> Zeros:
    """What a recurrent module makes where it is given no state; its size depends on the batch."""
    if not all(operation(user) in (*RECURRENT, *CELLS, "bslite.recurrent") for user in s.users):
        raise Unsupported("its size depends on the batch")
    return Zeros()


def _piece(s: Site, x: Operand, start: int, stop: int, axis: int = 0) -> Operand:
    """``x[start:stop]`` along ``axis``."""
    if (start, stop) == (0, x.shape[axis]):
        return x
    shape = (*x.shape[:axis], stop - start, *x.shape[axis + 1 :])
    return s.emit("slice", x, inner=shape, axis=axis, start=start, stop=stop)


def _rows(s: Site, x: Operand, count: Any, start: int, stop: int | None) -> Operand:
    """``x[start:stop]``, ``count`` of them: from the end, for the number of time steps may be free."""
    return s.emit("slice", x, inner=(count, *x.shape[1:]), axis=0, start=start, stop=stop)


def _drop(s: Site, x: Operand) -> Operand:
    """``x[0]``."""
    return reshape(s, x, tuple(x.shape[1:]), last=False)


def _layer(
    s: Site, op: str, x: Operand, state: Sequence[Operand], params: Sequence[Operand],
    lengths: Sequence[Operand] = (), **attrs: Any,
) -> list[Operand]:  # fmt: skip
    """One layer in one direction: outputs ``[T, N, P]``, then the last states ``[1, N, P or H]``."""
    biased = len(params) > 3  # without biases there are two weights, or three with the projection
    roles = ROLES if biased else (*ROLES[:2], ROLES[4])
    weights = dict(zip(roles, params, strict=False))
    steps, batch, _ = x.shape
    features = weights["weight_hh"].shape[1]
    gates, states = {"lstm": (4, 2), "gru": (3, 1)}.get(op, (1, 1))
    hidden = weights["weight_ih"].shape[0] // gates
    shape: Dims = (steps + states, batch, hidden)
    attrs = {**attrs, "initial_state": bool(state), "lengths": bool(lengths)}
    y = s.emit(op, x, *state, *lengths, inner=shape, params=dict(weights), **attrs)
    h = _piece(s, y, 0, features, axis=2)
    made = [_rows(s, h, steps, 0, -states), _rows(s, h, 1, -states, 1 - states or None)]
    return [*made, _rows(s, y, 1, -1, None)] if states == 2 else made


def _kind(operation: str) -> tuple[str, dict[str, Any]]:
    """The op for a torch operation, and what its name says besides."""
    name = operation.removesuffix("_cell")
    return ("rnn", {"activation": name[4:]}) if name.startswith("rnn_") else (name, {})


def _given(s: Site, state: Any) -> list[Operand]:
    """The initial states, none of them if they are zeros."""
    states = list(state) if isinstance(state, (list, tuple)) else [state]
    if all(isinstance(x, Zeros) for x in states):
        return []
    if any(isinstance(x, Zeros) for x in states):
        raise Unsupported("one of its initial states is zeros of the batch's size, the other is not")
    return states


@aten(*(f"{name}.input" for name in RECURRENT))
def recurrent(
    s: Site, x: Operand, state: Any, params: Sequence[Operand], has_biases: bool, layers: int, dropout: float,
    train: bool, bidirectional: bool, batch_first: bool,
) -> list[Operand]:  # fmt: skip
    if train and dropout:
        raise Unsupported("called with train=True and dropout")
    op, attrs = _kind(s.operation)
    if batch_first:
        x = _turned(s, x)
    x, *ends = _stack(s, op, x, _given(s, state), (), params, layers, bidirectional, attrs)
    return [_turned(s, x) if batch_first else x, *ends]


@aten("bslite.recurrent")
def packed(
    s: Site, kind: str, x: Operand, lengths: Operand, state: Any, params: Sequence[Operand], biased: bool,
    layers: int, bidirectional: bool,
) -> list[Operand]:  # fmt: skip
    """Over packed sequences, which came padded; see `torch_packed`."""
    op, attrs = _kind(kind)
    return _stack(s, op, x, _given(s, state), (lengths,), params, layers, bidirectional, attrs)


@aten("bslite.lengths")
def lengths(
    s: Site, lengths: Operand, x: Operand, in_order: bool, longest: int | None, whole: bool
) -> Operand:
    return s.emit("sequence_lengths", lengths, x, sorted=in_order, longest=longest, whole=whole)


def _stack(
    s: Site, op: str, x: Operand, given: Sequence[Operand], lengths: Sequence[Operand],
    params: Sequence[Operand], layers: int, bidirectional: bool, attrs: dict[str, Any],
) -> list[Operand]:  # fmt: skip
    """All layers and directions: outputs of the last layer ``[T, N, ...]``, last states of all."""
    directions = 1 + bidirectional
    each = len(params) // (layers * directions)
    ends: list[list[Operand]] = []
    for layer in range(layers):
        sides = []
        for d in range(directions):
            i = layer * directions + d
            before = [_drop(s, _piece(s, part, i, i + 1)) for part in given]
            own = params[i * each : (i + 1) * each]
            made = _layer(s, op, x, before, own, lengths, reverse=bool(d), **attrs)
            sides.append(made[0])
            ends.append(made[1:])
        x = _joined(s, sides, 2)
    return [x, *(_joined(s, list(part), 0) for part in zip(*ends, strict=True))]


def _turned(s: Site, x: Operand) -> Operand:
    """Time and batch change places."""
    shape = (x.shape[1], x.shape[0], x.shape[2])
    return s.emit("permute", x, inner=shape, order=(1, 0, 2))


def _joined(s: Site, parts: list[Operand], axis: int) -> Operand:
    if len(parts) == 1:
        return parts[0]
    shape = list(parts[0].shape)
    shape[axis] = sum(p.shape[axis] for p in parts)
    return s.emit("concat", *parts, inner=tuple(shape), axis=axis)


@aten(*CELLS)
def cell(s: Site, x: Operand, state: Any, *params: Operand) -> Any:
    op, attrs = _kind(s.operation)
    line = reshape(s, x, (1, *x.shape), last=False)
    made = _layer(s, op, line, _given(s, state), [p for p in params if p is not None], **attrs)
    results = [_drop(s, part) for part in made[1:]]
    return results if op == "lstm" else results[0]
