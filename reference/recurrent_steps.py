"""The time steps of recurrent layers on products with x, and the loops backwards over what they keep."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from bslite.reference.activation import sigmoid
from bslite.reference.recurrent import affine, begin, scan
from bslite.reference.registry import Array, reference


class Ends(NamedTuple):
    """The attributes that all of these ops have."""

    reverse: bool
    initial_state: bool
    lengths: bool


Step = Callable[[Array, list[Array]], tuple[list[Array], list[Array]]]


def _places(lengths: Array, steps: int, reverse: bool) -> Iterator[tuple[int, Array, Array, Array]]:
    """The steps in order: their number, the sequences that are not over, their rows and their times."""
    for s in range(steps):
        live = s < lengths
        rows = np.flatnonzero(live)
        yield s, live, rows, lengths[live] - 1 - s if reverse else np.full(len(rows), s)


def _forwards(
    x: Array, rest: tuple[Array, ...], hidden: int, states: int, step: Step, ends: Ends, keeps: bool
) -> Array:
    """The outputs and the last state, or if it ``keeps`` the second result of each ``step``, with c, if any,
    and h behind it.
    """
    state, lengths = begin((x, *rest), [hidden] * states, ends.initial_state, ends.lengths)
    state = [start.copy() for start in state]
    if not keeps:
        return scan(x, state, lengths, ends.reverse, hidden, lambda x, state: step(x, state)[0])
    steps, batch, _ = x.shape
    rows: list[Array] = []
    for s, live, own, time in _places(lengths, steps, ends.reverse):
        after, gates = step(x[time, own], [old[own] for old in state])
        row = np.concatenate([*gates, *after[::-1]], axis=1)
        if s == 0:
            rows = [np.zeros((batch, row.shape[1]), x.dtype) for _ in range(steps + 1)]
        for n, t, values in zip(own, time, row, strict=True):
            rows[t][n] = values
        for old, new in zip(state, after, strict=True):
            old[live] = new
    for i, last in enumerate(state[::-1]):
        first = rows[steps].shape[1] - (states - i) * hidden
        rows[steps][:, first : first + hidden] = last
    return np.stack(rows)


@reference("lstm_steps")
def lstm_steps(
    x: Array, weight_hh: Array, bias_hh: Array, *rest: Array,
    reverse: bool, initial_state: bool, lengths: bool, keeps: bool,
) -> Array:  # fmt: skip
    """`lstm` where ``x`` is the products with its inputs."""

    def step(x: Array, before: list[Array]) -> tuple[list[Array], list[Array]]:
        h, c = before
        i, f, g, o = np.split(x + affine(h, weight_hh, bias_hh), 4, axis=1)
        gates = [sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)]
        c = gates[1] * c + gates[0] * gates[2]
        return [gates[3] * np.tanh(c), c], gates

    return _forwards(x, rest, weight_hh.shape[1], 2, step, Ends(reverse, initial_state, lengths), keeps)


@reference("gru_steps")
def gru_steps(
    x: Array, weight_hh: Array, bias_hh: Array, *rest: Array,
    reverse: bool, initial_state: bool, lengths: bool, reset_after: bool, keeps: bool,
) -> Array:  # fmt: skip
    """`gru` where ``x`` is the products with its inputs."""
    hidden = weight_hh.shape[1]
    gates, new = slice(0, 2 * hidden), slice(2 * hidden, None)

    def step(x: Array, before: list[Array]) -> tuple[list[Array], list[Array]]:
        (h,) = before
        r, z = np.split(sigmoid(x[:, gates] + affine(h, weight_hh[gates], bias_hh[gates])), 2, axis=1)
        seen = affine(h if reset_after else r * h, weight_hh[new], bias_hh[new])
        n = np.tanh(x[:, new] + (r * seen if reset_after else seen))
        return [(1 - z) * n + z * h], [r, z, n, *([seen] if reset_after else [])]

    return _forwards(x, rest, hidden, 1, step, Ends(reverse, initial_state, lengths), keeps)


@reference("rnn_steps")
def rnn_steps(
    x: Array, weight_hh: Array, bias_hh: Array, *rest: Array,
    reverse: bool, initial_state: bool, lengths: bool, activation: str,
) -> Array:  # fmt: skip
    """`rnn` where ``x`` is the products with its inputs."""

    def step(x: Array, before: list[Array]) -> tuple[list[Array], list[Array]]:
        y = x + affine(before[0], weight_hh, bias_hh)
        return [np.tanh(y) if activation == "tanh" else np.maximum(y, 0)], []

    return _forwards(x, rest, weight_hh.shape[1], 1, step, Ends(reverse, initial_state, lengths), False)


Back = Callable[[Array, list[Array], list[Array]], tuple[Array, list[Array]]]


def _backwards(
    kept: Array, grad: Array, rest: tuple[Array, ...], sizes: tuple[int, int, int], step: Back,
    ends: Ends,
) -> Array:  # fmt: skip
    """``sizes``: hidden units, states, features of the result. ``step`` maps what a step kept, the gradient
    of its output without that by way of the next step, the gradients of its new state and its old state to
    the deltas and the gradients of the old state.
    """
    hidden, states, features = sizes
    steps, batch = kept.shape[0] - 1, kept.shape[1]
    state, lengths = begin((kept[:-1], *rest), [hidden] * states, ends.initial_state, ends.lengths)
    made = np.zeros((steps + ends.initial_state, batch, features), kept.dtype)
    by_state = [grad[steps + i].copy() for i in range(states)]
    for s, live, rows, time in reversed(list(_places(lengths, steps, ends.reverse))):
        earlier = time + 1 if ends.reverse else time - 1
        old = [x[rows] for x in state]
        if s:
            parts = np.split(kept[earlier, rows], kept.shape[2] // hidden, axis=1)
            old = parts[::-1][:states]
        after = [x[rows] for x in by_state]
        after[0] = after[0] + grad[time, rows]
        deltas, before = step(kept[time, rows], after, old)
        made[time, rows] = deltas
        for x, new in zip(by_state, before, strict=True):
            x[live] = new
    if ends.initial_state:
        for i, x in enumerate(by_state):
            made[steps, :, i * hidden : (i + 1) * hidden] = x
    return made


@reference("lstm_deltas")
def lstm_deltas(
    kept: Array, weight_hh: Array, grad: Array, *rest: Array,
    reverse: bool, initial_state: bool, lengths: bool,
) -> Array:  # fmt: skip
    """The derivatives of `lstm_steps` (Hochreiter & Schmidhuber 1997, in full: back-propagation in time)."""
    hidden = weight_hh.shape[1]

    def step(now: Array, after: list[Array], old: list[Array]) -> tuple[Array, list[Array]]:
        i, f, g, o, c, _ = np.split(now, 6, axis=1)
        seen = np.tanh(c)
        by_h, by_c = after
        by_c = by_c + by_h * o * (1 - seen * seen)
        deltas = np.concatenate(
            [by_c * g * i * (1 - i), by_c * old[1] * f * (1 - f), by_c * i * (1 - g * g),
             by_h * seen * o * (1 - o)], axis=1
        )  # fmt: skip
        return deltas, [deltas @ weight_hh, by_c * f]

    return _backwards(kept, grad, rest, (hidden, 2, 4 * hidden), step, Ends(reverse, initial_state, lengths))


@reference("gru_deltas")
def gru_deltas(
    kept: Array, weight_hh: Array, grad: Array, *rest: Array,
    reverse: bool, initial_state: bool, lengths: bool, reset_after: bool,
) -> Array:  # fmt: skip
    """The derivatives of `gru_steps`."""
    hidden = weight_hh.shape[1]
    gates, new = weight_hh[: 2 * hidden], weight_hh[2 * hidden :]

    def step(now: Array, after: list[Array], old: list[Array]) -> tuple[Array, list[Array]]:
        r, z, n, *seen = np.split(now, now.shape[1] // hidden, axis=1)
        by_h, h = after[0], old[0]
        by_z, by_n = by_h * (h - n) * z * (1 - z), by_h * (1 - z) * (1 - n * n)
        if reset_after:
            by_r, by_seen = by_n * seen[0] * r * (1 - r), by_n * r
            deltas = [by_r, by_z, by_n, by_seen]
            kept_h = by_h * z + by_seen @ new
        else:
            by_rh = by_n @ new
            by_r = by_rh * h * r * (1 - r)
            deltas = [by_r, by_z, by_n]
            kept_h = by_h * z + by_rh * r
        return np.concatenate(deltas, axis=1), [kept_h + np.concatenate(deltas[:2], axis=1) @ gates]

    return _backwards(
        kept, grad, rest, (hidden, 1, (3 + reset_after) * hidden), step, Ends(reverse, initial_state, lengths)
    )


@reference("rnn_deltas")
def rnn_deltas(
    kept: Array, weight_hh: Array, grad: Array, *rest: Array,
    reverse: bool, initial_state: bool, lengths: bool, activation: str,
) -> Array:  # fmt: skip
    """The derivatives of `rnn_steps`."""
    hidden = weight_hh.shape[1]

    def step(now: Array, after: list[Array], old: list[Array]) -> tuple[Array, list[Array]]:
        by_h = after[0]
        deltas = by_h * (1 - now * now) if activation == "tanh" else np.where(now > 0, by_h, 0)
        return deltas, [deltas @ weight_hh]

    return _backwards(kept, grad, rest, (hidden, 1, hidden), step, Ends(reverse, initial_state, lengths))
