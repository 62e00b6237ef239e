"""Recurrent modules of several layers and directions; each layer in each direction is one op."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bslite.ops.recurrent import CELLS, Recurrent
from bslite.spec import Array

#: torch's name of a module -> its op, and what the name says besides.
KINDS: dict[str, tuple[Recurrent, dict[str, Any]]] = {
    "lstm": (CELLS["lstm"], {}),
    "gru": (CELLS["gru"], {}),
    "rnn_tanh": (CELLS["rnn"], {"activation": "tanh"}),
    "rnn_relu": (CELLS["rnn"], {"activation": "relu"}),
}


def in_order(rows: Array, have: str, want: str) -> Array:
    """``rows`` reordered: axis 0 holds gates of one size in the order ``have``, made ``want`` (letters)."""
    if have == want:
        return rows
    parts = dict(zip(have, np.split(rows, len(have)), strict=True))
    return np.concatenate([parts[gate] for gate in want])


def stacked(
    x: Any,
    layers: int,
    directions: int,
    made: Callable[[Any, int, int], Sequence[Any]],
    join: Callable[[list[Any], int, str], Any],
) -> tuple[Any, list[list[Any]]]:
    """The outputs of the last layer, and of each kind (h, c) the last states of all layers and directions.

    ``made(x, layer, direction)``: outputs ``[T, N, P]`` and last states ``[1, N, ...]`` of one op;
    ``join(parts, axis, label)``: several values side by side.
    """
    ends: list[Sequence[Any]] = []
    for layer in range(layers):
        sides = [made(x, layer, d) for d in range(directions)]
        ends += [side[1:] for side in sides]
        outputs = [side[0] for side in sides]
        x = outputs[0] if directions == 1 else join(outputs, 2, f"l{layer}.y")
    return x, [list(parts) for parts in zip(*ends, strict=True)]
