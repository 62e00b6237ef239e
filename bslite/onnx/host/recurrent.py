"""LSTM, GRU and RNN in forms that the engine has not: other activations, clip, input_forget, empty sequences.

The steps are onnxruntime's: what comes before an activation is clipped, a sequence of no steps has zeros for
its outputs and last states.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bslite.errors import InputError, SpecError, UnsupportedError
from bslite.onnx.host.node import host_op
from bslite.spec import Array

Function = Callable[[Array], Array]
SCHEMAS = ["Tanh", "Tanh"]  # of an RNN that names none, be it of one way
USUAL = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def _sigmoid(x: Array) -> Array:
    return np.asarray(0.5 * np.tanh(0.5 * x) + 0.5)


NAN = float("nan")
#: Name in lower case -> the function of x, alpha and beta, and what these are by default: None
#: where it takes none, NaN where it must be given: ONNX and onnxruntime have other defaults.
ACTIVATIONS: dict[str, tuple[Callable[..., Any], float | None, float | None]] = {
    "affine": (lambda x, a, b: a * x + b, NAN, NAN),
    "elu": (lambda x, a, b: np.where(x > 0, x, a * np.expm1(x)), 1.0, None),
    "hardsigmoid": (lambda x, a, b: np.clip(a * x + b, 0, 1), 0.2, 0.5),
    "leakyrelu": (lambda x, a, b: np.where(x < 0, a * x, x), 0.01, None),
    "relu": (lambda x, a, b: np.maximum(x, 0), None, None),
    "scaledtanh": (lambda x, a, b: a * np.tanh(b * x), NAN, NAN),
    "sigmoid": (lambda x, a, b: _sigmoid(x), None, None),
    "softplus": (lambda x, a, b: np.logaddexp(x, x.dtype.type(0)), None, None),
    "softsign": (lambda x, a, b: x / (1 + np.abs(x)), None, None),
    "tanh": (lambda x, a, b: np.tanh(x), None, None),
    "thresholdedrelu": (lambda x, a, b: np.where(x > a, x, 0), NAN, None),
}


def _functions(
    names: Sequence[str], alpha: Sequence[float] | None, beta: Sequence[float] | None
) -> list[Function]:
    """The activations; numbers are given in order to those that take some."""
    alphas, betas = iter(alpha or ()), iter(beta or ())

    def made() -> Iterator[Function]:
        for name in names:
            if name.lower() not in ACTIVATIONS:
                raise UnsupportedError(f"activation {name!r}")
            function, a, b = ACTIVATIONS[name.lower()]
            a = None if a is None else next(alphas, a)
            b = None if b is None else next(betas, b)
            if any(v is not None and math.isnan(v) for v in (a, b)):
                raise UnsupportedError(f"activation {name!r} without its activation_alpha or activation_beta")
            yield partial(function, a=a, b=b)

    return list(made())


class Way(NamedTuple):
    """One direction: weights ``[gates * H, I or H]``, a bias for each product, peepholes ``[3, H]``."""

    w: Array
    r: Array
    bias: Array
    of_state: Array
    peepholes: Array
    activations: list[Function]
    clip: Function
    coupled: bool  # whether the forget gate is what the input gate leaves
    after: bool  # whether a GRU's reset gate comes after the product


def _lstm(way: Way, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    f, g, last = way.activations
    i, o, forget, new = np.split(x + h @ way.r.T + way.of_state, 4, axis=-1)
    i = f(way.clip(i + way.peepholes[0] * c))
    forget = 1 - i if way.coupled else f(way.clip(forget + way.peepholes[2] * c))
    c = forget * c + i * g(way.clip(new))
    return f(way.clip(o + way.peepholes[1] * c)) * last(c), c


def _gru(way: Way, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    f, g = way.activations
    n = h.shape[-1]
    gates = x[..., : 2 * n] + h @ way.r[: 2 * n].T + way.of_state[: 2 * n]
    z, r = np.split(f(way.clip(gates)), 2, axis=-1)
    if way.after:
        new = x[..., 2 * n :] + r * (h @ way.r[2 * n :].T + way.of_state[2 * n :])
    else:
        new = x[..., 2 * n :] + (r * h) @ way.r[2 * n :].T + way.of_state[2 * n :]
    return (1 - z) * g(way.clip(new)) + z * h, c


def _rnn(way: Way, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    return way.activations[0](way.clip(x + h @ way.r.T + way.of_state)), c


STEPS = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}


@host_op("LSTM", "GRU", "RNN", last=True)
def recurrent(
    x: Array, w: Array, r: Array, b: Array | None = None, lengths: Array | None = None,
    h: Array | None = None, c: Array | None = None, p: Array | None = None, *, op_type: str,
    direction: str | None = None, layout: int | None = None, hidden_size: int | None = None,
    clip: float | None = None, activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] | None = None, activation_beta: Sequence[float] | None = None,
    output_sequence: int | None = None, input_forget: int = 0, linear_before_reset: int = 0,
) -> tuple[Array, ...]:  # fmt: skip
    """``[T, directions, N, H]`` and the last states ``[directions, N, H]``; ``layout``: the batch first."""
    ways = {"forward": 1, "reverse": 1, "bidirectional": 2}.get(direction or "forward")
    if ways is None:
        raise SpecError(f"direction {direction!r} is not one of forward, reverse, bidirectional")
    if layout:
        x = x.transpose(1, 0, 2)
        h, c = (None if s is None else s.transpose(1, 0, 2) for s in (h, c))
    gates, hidden = GATES[op_type], r.shape[-1]
    steps, rows, features = x.shape
    shapes: dict[str, tuple[Array | None, tuple[int, ...]]] = {}
    shapes |= {"W": (w, (ways, gates * hidden, features)), "R": (r, (ways, gates * hidden, hidden))}
    shapes |= {"B": (b, (ways, 2 * gates * hidden)), "P": (p, (ways, 3 * hidden))}
    shapes |= {"sequence_lens": (lengths, (rows,)), "initial_h": (h, (ways, rows, hidden))}
    shapes |= {"initial_c": (c, (ways, rows, hidden))}
    for role, (array, want) in shapes.items():
        if array is not None and array.shape != want:
            raise InputError(f"{role} is {list(array.shape)}, expected {list(want)}")
    many = np.full(rows, steps) if lengths is None else lengths.astype(np.int64)
    if ((many < 0) | (many > steps)).any():
        raise InputError(f"a sequence length of {many.tolist()} is not between 0 and {steps}")
    names = list(activations or USUAL[op_type] * ways)
    if op_type == "RNN" and names == SCHEMAS:
        names = names[:ways]
    if len(names) != len(USUAL[op_type]) * ways:
        raise SpecError(f"{len(names)} activations, expected {len(USUAL[op_type]) * ways}")
    functions = _functions(names, activation_alpha, activation_beta)
    each = len(functions) // ways
    zeros = np.zeros((rows, hidden), x.dtype)
    clipped: Function = (lambda v: v) if clip is None else (lambda v: np.clip(v, -clip, clip))
    made = []
    for d in range(ways):
        biases = np.zeros((2, gates * hidden), x.dtype) if b is None else b[d].reshape(2, -1)
        way = Way(
            w[d], r[d], biases[0], biases[1],
            np.zeros((3, hidden), x.dtype) if p is None else p[d].reshape(3, hidden),
            functions[d * each : (d + 1) * each], clipped, bool(input_forget), bool(linear_before_reset),
        )  # fmt: skip
        before = [zeros if s is None else s[d] for s in (h, c)]
        made.append(_through(op_type, way, x, many, before, direction == "reverse" or d == 1))
    y = np.stack([ys for ys, *_ in made], 1)
    last = [np.stack([states[k] for _, *states in made]) for k in range(2 if op_type == "LSTM" else 1)]
    if layout:
        return y.transpose(2, 0, 1, 3), *(s.transpose(1, 0, 2) for s in last)
    return y, *last


def _through(
    op: str, way: Way, x: Array, lengths: Array, before: Sequence[Array], backwards: bool
) -> tuple[Array, Array, Array]:
    """Outputs ``[T, N, H]`` and last states of one direction; each sequence ends after its own length."""
    steps, rows, _ = x.shape
    place = np.tile(np.arange(steps)[:, None], (1, rows))
    if backwards:
        place = np.where(place < lengths, lengths - 1 - place, place)
    across = np.arange(rows)
    projected = x[place, across] @ way.w.T + way.bias
    h, c = (np.where((lengths > 0)[:, None], s, s.dtype.type(0)) for s in before)
    y = np.zeros((steps, rows, h.shape[-1]), x.dtype)
    for t in range(steps):
        live = (t < lengths)[:, None]
        new_h, new_c = (np.asarray(s, x.dtype) for s in STEPS[op](way, projected[t], h, c))
        h, c = np.where(live, new_h, h), np.where(live, new_c, c)
        y[place[t], across] = np.where(live, new_h, x.dtype.type(0))
    return y, h, c
