"""Recurrent layers, one time step after the other, as torch documents them."""

from collections.abc import Callable

import numpy as np

from bslite.errors import IntegerRangeError
from bslite.reference.activation import sigmoid
from bslite.reference.registry import Array, reference

Step = Callable[[Array, list[Array]], list[Array]]


def affine(x: Array, weight: Array, bias: Array | None) -> Array:
    """``x @ weight.T + bias``."""
    y = x @ weight.T
    return y if bias is None else y + bias


def begin(
    inputs: tuple[Array, ...], sizes: list[int], initial_state: bool, lengths: bool
) -> tuple[list[Array], Array]:
    """The state before the first step, zeros if not given, and the length of each sequence."""
    x, *rest = inputs
    steps, batch, _ = x.shape
    found = rest.pop() if lengths else np.full(batch, steps)
    wrong = (found < 1) | (found > steps)
    if wrong.any():
        first = int(found[wrong][0])
        raise IntegerRangeError(f"sequence length {first} is not between 1 and {steps}", number=first)
    return (rest if initial_state else [np.zeros((batch, n), x.dtype) for n in sizes]), found


def scan(x: Array, state: list[Array], lengths: Array, reverse: bool, hidden: int, step: Step) -> Array:
    """``step`` along each sequence: outputs ``[T, N, H]``, then the last state."""
    steps, batch, _ = x.shape
    made = np.zeros((steps + len(state), batch, hidden), x.dtype)
    rows = np.arange(batch)
    for s in range(steps):
        live = s < lengths
        time = np.where(live, lengths - 1 - s, s) if reverse else np.full(batch, s)
        after = step(x[time, rows], state)
        state = [np.where(live[:, None], new, old) for new, old in zip(after, state, strict=True)]
        made[time[live], rows[live], : state[0].shape[1]] = state[0][live]
    for i, last in enumerate(state):
        made[steps + i, :, : last.shape[1]] = last
    return made


@reference("lstm")
def lstm(
    *inputs: Array, weight_ih: Array, weight_hh: Array, bias_ih: Array | None = None,
    bias_hh: Array | None = None, weight_hr: Array | None = None, peephole: Array | None = None,
    reverse: bool, initial_state: bool, lengths: bool,
) -> Array:  # fmt: skip
    """torch.nn.LSTM's equations (Hochreiter & Schmidhuber 1997, forget gate of Gers et al. 2000).

    Peepholes are those of ONNX ``LSTM``: the input and forget gates see c before the step, the output gate c
    after it.
    """
    ends, width = (reverse, initial_state, lengths), weight_hh.shape[1]

    def sums(x: Array, h: Array) -> Array:
        return affine(x, weight_ih, bias_ih) + affine(h, weight_hh, bias_hh)

    return _lstm(inputs, sums, (width, weight_ih.shape[0] // 4), weight_hr, peephole, ends)


@reference("lstm_rounded")
def lstm_rounded(
    *inputs: Array, weight_hh: Array, scale_hh: Array, peephole: Array | None = None,
    reverse: bool, initial_state: bool, lengths: bool,
) -> Array:  # fmt: skip
    """`lstm` of an h that is `rounded`, over the batch, before its product, which is one of integers."""
    whole, hidden = weight_hh.astype(np.int64).T, weight_hh.shape[1]

    def sums(x: Array, h: Array) -> Array:
        numbers, scale = rounded(h)
        if not np.isfinite(scale):  # no number stands for what is infinite
            return np.full_like(x, np.nan)
        return x + (numbers.astype(np.int64) @ whole).astype(h.dtype) * (scale_hh.astype(h.dtype) * scale)

    return _lstm(inputs, sums, (hidden, hidden), None, peephole, (reverse, initial_state, lengths))


def rounded(h: Array) -> tuple[Array, Array]:
    """The 8-bit numbers, less their zero point, that stand for ``h``, and their scale: ONNX
    ``DynamicQuantizeLinear``.
    """
    low, high = np.minimum(h.min(), 0), np.maximum(h.max(), 0)
    scale = (high - low) / h.dtype.type(255) if high != low else h.dtype.type(1)
    zero = np.rint(np.clip(-low / scale, 0, 255))
    return np.clip(np.rint(h / scale) + zero, 0, 255) - zero, scale


def _lstm(
    inputs: tuple[Array, ...], sums: Callable[[Array, Array], Array], sizes: tuple[int, int],
    weight_hr: Array | None, peephole: Array | None, ends: tuple[bool, bool, bool],
) -> Array:  # fmt: skip
    """``sums``: the gates' sums of x and h. ``sizes``: h, c. ``ends``: reverse, initial_state, lengths."""
    reverse, initial_state, lengths = ends
    state, found = begin(inputs, list(sizes), initial_state, lengths)

    def sees(part: int, c: Array) -> Array | float:  # no peephole is not one of zero: c may be infinite
        return 0.0 if peephole is None else np.split(peephole, 3)[part] * c

    def step(x: Array, before: list[Array]) -> list[Array]:
        h, c = before
        i, f, g, o = np.split(sums(x, h), 4, axis=1)
        c = sigmoid(f + sees(1, c)) * c + sigmoid(i + sees(0, c)) * np.tanh(g)
        h = sigmoid(o + sees(2, c)) * np.tanh(c)
        return [h if weight_hr is None else h @ weight_hr.T, c]

    return scan(inputs[0], state, found, reverse, sizes[1], step)


@reference("gru")
def gru(
    *inputs: Array, weight_ih: Array, weight_hh: Array, bias_ih: Array | None = None,
    bias_hh: Array | None = None, reverse: bool, initial_state: bool, lengths: bool, reset_after: bool,
) -> Array:  # fmt: skip
    """torch.nn.GRU's equations (Cho et al. 2014); without ``reset_after``, ONNX's (linear_before_reset=0)."""
    hidden = weight_ih.shape[0] // 3
    state, found = begin(inputs, [hidden], initial_state, lengths)
    new_hh = weight_hh[2 * hidden :]
    new_bias = None if bias_hh is None else bias_hh[2 * hidden :]

    def step(x: Array, before: list[Array]) -> list[Array]:
        (h,) = before
        xr, xz, xn = np.split(affine(x, weight_ih, bias_ih), 3, axis=1)
        hr, hz, hn = np.split(affine(h, weight_hh, bias_hh), 3, axis=1)
        r, z = sigmoid(xr + hr), sigmoid(xz + hz)
        n = np.tanh(xn + (r * hn if reset_after else affine(r * h, new_hh, new_bias)))
        return [(1 - z) * n + z * h]

    return scan(inputs[0], state, found, reverse, hidden, step)


@reference("rnn")
def rnn(
    *inputs: Array, weight_ih: Array, weight_hh: Array, bias_ih: Array | None = None,
    bias_hh: Array | None = None, reverse: bool, initial_state: bool, lengths: bool, activation: str,
) -> Array:  # fmt: skip
    """torch.nn.RNN's equation (Elman 1990)."""
    state, found = begin(inputs, [weight_hh.shape[1]], initial_state, lengths)

    def step(x: Array, before: list[Array]) -> list[Array]:
        y = affine(x, weight_ih, bias_ih) + affine(before[0], weight_hh, bias_hh)
        return [np.tanh(y) if activation == "tanh" else np.maximum(y, 0)]

    return scan(inputs[0], state, found, reverse, weight_hh.shape[1], step)
