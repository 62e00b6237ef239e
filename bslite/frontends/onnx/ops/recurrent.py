"""Builders of LSTM, GRU and RNN: one op for each direction; its slices are ONNX's outputs.

ONNX keeps the gates in another order than torch (and bslite), and the biases of both products in one vector.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from bslite.errors import SpecError
from bslite.frontends.common.recurrent import in_order
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.onnx.broadcasts import distinct
from bslite.frontends.onnx.builders import onnx_op
from bslite.frontends.onnx.ops.moves import permuted, reshaped
from bslite.frontends.onnx.site import Site
from bslite.frontends.onnx.values import Const, Operand, Sizes, Value
from bslite.ops.recurrent import CELLS, Recurrent
from bslite.spec import Array

DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
#: Of each op: ONNX's order of the gates, by the letters of bslite's; and the usual activations.
ORDER = {"lstm": "iofg", "lstm_rounded": "iofg", "gru": "zrn", "rnn": "h"}
USUAL = {
    "lstm": ["sigmoid", "tanh", "tanh"],
    "lstm_rounded": ["sigmoid", "tanh", "tanh"],
    "gru": ["sigmoid", "tanh"],
    "rnn": ["tanh"],
}
#: Of a site, x, a direction and its biases: what the op takes for x, and its parameters.
Side = Callable[[Site, Operand, int, Array | None], tuple[Operand, dict[str, Operand]]]


@onnx_op("LSTM", "GRU", "RNN")
def recurrent(
    s: Site, x: Operand, w: Operand, r: Operand, b: Operand | None = None, lengths: Operand | None = None,
    h: Operand | None = None, c: Operand | None = None, p: Operand | None = None, *,
    direction: str | None = None, layout: int | None = None, hidden_size: int | None = None,
    clip: float | None = None, activations: Any = None, activation_alpha: Any = None,
    activation_beta: Any = None, output_sequence: int | None = None, input_forget: int = 0,
    linear_before_reset: int = 0, side: Side | None = None,
) -> Any:  # fmt: skip
    """``side``: makes of a direction and its biases what the op takes for x, and its parameters."""
    op = s.op_type.lower()
    if input_forget:
        raise Unsupported("input_forget=1")
    if clip is not None:
        raise Unsupported(f"clip={clip:g}")
    way = direction or "forward"
    if way not in DIRECTIONS:
        raise SpecError(f"direction {way!r} is not one of {', '.join(DIRECTIONS)}")
    sides = DIRECTIONS[way]
    extra: dict[str, Any] = {"reset_after": bool(linear_before_reset)} if op == "gru" else {}
    extra |= _activation(op, activations, len(sides))
    weights = {role: s.array(part, f"its {role}") for role, part in (("W", w), ("R", r))}
    for role, array in weights.items():
        if array.ndim != 3 or array.shape[0] != len(sides):
            raise SpecError(f"{role} is {list(array.shape)}, expected [{len(sides)}, ...] of rank 3")
    gates, hidden = CELLS[op].gates, weights["R"].shape[2]
    if hidden_size is not None and hidden_size != hidden:
        raise SpecError(f"hidden_size is {hidden_size}, R {list(weights['R'].shape)} has {hidden}")
    biases = _part(s, b, "B", (len(sides), 2 * gates * hidden))
    peephole = _part(s, p, "P", (len(sides), 3 * hidden))
    if layout:
        x = permuted(s, x, (1, 0, 2), last=False)
    state = (h, c)[: CELLS[op].states]
    if all(part is None or _zeros(part) for part in state):
        state = (None,) * len(state)
    if any(part is None for part in state) and any(part is not None for part in state):
        raise Unsupported("one initial state is given, the other is not")
    given = [
        permuted(s, part, (1, 0, 2), last=False) if layout else part for part in state if part is not None
    ]
    values = []
    for d, reverse in enumerate(sides):
        before = [_row(s, part, d) for part in given]
        tail = [lengths] if lengths is not None else []
        ends = {"reverse": reverse, "initial_state": bool(given), "lengths": lengths is not None}
        if side is not None:
            first, params = side(s, x, d, None if biases is None else biases[d])
        else:
            first, params = x, _float_params(s, op, w, r, d, None if biases is None else biases[d])
        if peephole is not None:
            order = peephole[d].reshape(3, hidden)[[0, 2, 1]].reshape(-1)  # ONNX: input, output, forget
            params["peephole"] = s.const(order, f"{d}.peephole")
        values.append(s.inner(op, first, *before, *tail, params=params, **ends, **extra))
    return _outputs(s, values, CELLS[op], bool(layout))


def _float_params(s: Site, op: str, w: Operand, r: Operand, d: int, bias: Array | None) -> dict[str, Operand]:
    """The parameters of direction ``d``."""
    hidden = r.shape[2]
    params: dict[str, Operand] = {
        "weight_ih": _laid_out(s, w, f"{d}.weight_ih", d, partial(ordered, op, hidden=hidden)),
        "weight_hh": _laid_out(s, r, f"{d}.weight_hh", d, partial(ordered, op, hidden=hidden)),
    }
    if bias is not None:
        for i, role in enumerate(("bias_ih", "bias_hh")):
            half = bias.reshape(2, -1)[i]
            params[role] = s.const(ordered(op, half, hidden), f"{d}.{role}")
    return params


def _activation(op: str, names: Any, sides: int) -> dict[str, Any]:
    """What the attribute ``activations`` asks for, if bslite has it."""
    if not names:
        return {}
    given = [str(n).lower() for n in names]
    if op == "rnn" and set(given) in ({"relu"}, {"tanh"}):
        return {"activation": given[0]}
    if given != USUAL[op] * sides:
        raise Unsupported(f"activations {', '.join(given)}")
    return {}


def _part(s: Site, operand: Operand | None, role: str, shape: tuple[int, ...]) -> Array | None:
    """A known parameter, checked; None where it is left out."""
    if operand is None:
        return None
    array = s.array(operand, f"its {role}")
    if array.shape != shape:
        raise SpecError(f"{role} is {list(array.shape)}, expected {list(shape)}")
    return array


def _laid_out(s: Site, x: Operand, what: str, side: int, make: Callable[[Array], Array]) -> Operand:
    """A direction's part of the weights, laid out: one array for all sizes of the model."""
    assert isinstance(x, Const)
    return s.derived(x, what, ("recurrent", s.op_type, side), lambda a: make(a[side]))


def _zeros(x: Operand | None) -> bool:
    """Whether an initial state is known to be zero, which is what none is."""
    arrays = x.arrays if isinstance(x, Sizes) else (x.data,) if isinstance(x, Const) else ()
    return bool(arrays) and not any(np.any(distinct(a)) for a in arrays)


def ordered(op: str, rows: Array, hidden: int) -> Array:
    """``[gates * H, ...]`` from ONNX's order of the gates to torch's."""
    cell = CELLS[op]
    if rows.shape[0] != cell.gates * hidden:
        raise SpecError(f"{rows.shape[0]} rows of weights are not {cell.gates} gates of {hidden}")
    return in_order(rows, ORDER[op], cell.order)


def _row(s: Site, x: Operand, index: int) -> Operand:
    """``x[index]``."""
    if x.shape[0] != 1:
        x = s.inner("slice", x, axis=0, start=index, stop=index + 1)
    return reshaped(s, x, tuple(x.shape[1:]), last=False)


def _outputs(s: Site, values: list[Value], cell: Recurrent, batch_first: bool) -> tuple[Any, ...]:
    """Y ``[T, directions, N, H]`` and the last states ``[directions, N, H]``, or with the batch first."""

    def cut(value: Value, i: int) -> Operand:
        start, stop = cell.span(i)
        return s.inner("slice", value, axis=0, start=start, stop=stop)

    def joined(parts: list[Operand], axis: int) -> Operand:
        return parts[0] if len(parts) == 1 else s.inner("concat", *parts, axis=axis)

    made: list[Any] = []
    for i in range(1 + cell.states):
        if i < len(s.used) and not s.used[i]:
            made.append(None)
        elif i == 0:
            parts = [cut(v, 0) for v in values]
            shape = (parts[0].shape[0], 1, *parts[0].shape[1:])
            y = joined([reshaped(s, part, shape, last=False) for part in parts], 1)
            made.append(permuted(s, y, (2, 0, 1, 3), last=False) if batch_first else y)
        else:
            last = joined([cut(v, i) for v in values], 0)
            made.append(permuted(s, last, (1, 0, 2), last=False) if batch_first else last)
    return tuple(made)
