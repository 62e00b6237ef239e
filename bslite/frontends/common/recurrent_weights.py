"""An LSTM, GRU or RNN from weights alone, under the names torch's modules give them: ``weight_ih_l0``, ..."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bslite.errors import WeightsError
from bslite.ops import Shape
from bslite.spec import Array, GraphBuilder, ModelSpec

#: Name -> op, its gates in torch's order, attributes.
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "lstm": ("lstm", "ifgo", {}),
    "gru": ("gru", "rzn", {}),
    "rnn_tanh": ("rnn", "h", {"activation": "tanh"}),
    "rnn_relu": ("rnn", "h", {"activation": "relu"}),
}
_KEY = re.compile(r"(weight_ih|weight_hh|weight_hr|bias_ih|bias_hh)_l(\d+)(_reverse)?")
_EXAMPLE = (4, 2)  # steps, sequences


@dataclass(frozen=True)
class Sizes:
    """Of a module, read off its weights."""

    kind: str
    inputs: int
    hidden: int
    projected: int  # features of h; `hidden` where nothing is projected
    layers: int
    directions: int
    biased: bool

    @property
    def gates(self) -> int:
        return len(KINDS[self.kind][1])

    def wanted(self) -> dict[str, Shape]:
        """Every parameter, with its shape."""
        rows = self.gates * self.hidden
        found: dict[str, Shape] = {}
        for layer in range(self.layers):
            features = self.projected * self.directions if layer else self.inputs
            for side in ("", "_reverse")[: self.directions]:
                end = f"_l{layer}{side}"
                found[f"weight_ih{end}"] = (rows, features)
                found[f"weight_hh{end}"] = (rows, self.projected)
                if self.biased:
                    found |= {f"bias_ih{end}": (rows,), f"bias_hh{end}": (rows,)}
                if self.projected != self.hidden:
                    found[f"weight_hr{end}"] = (self.projected, self.hidden)
        return found


def sizes_of(kind: str, shapes: Mapping[str, Shape]) -> Sizes:
    """What the shapes of ``weight_ih_l0`` and ``weight_hh_l0`` and the other names say. WeightsError if they
    make no ``kind``.
    """
    found = [m for m in map(_KEY.fullmatch, shapes) if m]
    absent = [key for key in ("weight_ih_l0", "weight_hh_l0") if key not in shapes]
    if absent:
        raise WeightsError(
            f"the weights do not fit {kind}: missing {', '.join(absent)}, from which its sizes are read; "
            f"there is: {', '.join(list(shapes)[:6]) or 'nothing'}"
        )
    ih, hh, gates = shapes["weight_ih_l0"], shapes["weight_hh_l0"], len(KINDS[kind][1])
    for key, shape in (("weight_ih_l0", ih), ("weight_hh_l0", hh)):
        if len(shape) != 2 or 0 in shape:
            raise WeightsError(f"the weights do not fit {kind}: {key} is {list(shape)}, expected a matrix")
    projected, hidden = hh[1], hh[0] // gates
    fits = hh[0] == gates * hidden and (projected == hidden or "weight_hr_l0" in shapes)
    if not fits or ih[0] != hh[0]:
        raise WeightsError(
            f"the weights do not fit {kind}: weight_ih_l0 is {list(ih)} and weight_hh_l0 {list(hh)}, "
            f"expected [{gates}*H, I] and [{gates}*H, H]{_hint(kind, ih, hh)}"
        )
    layers = 1 + max(int(m[2]) for m in found)
    return Sizes(
        kind,
        ih[1],
        hidden,
        projected,
        layers,
        1 + any(m[3] for m in found),
        any("bias" in m[1] for m in found),
    )


def _hint(kind: str, ih: Shape, hh: Shape) -> str:
    """What the shapes look like instead."""
    gates = len(KINDS[kind][1])
    if hh[1] == gates * hh[0]:
        return "; they look transposed, [I, gates*H] as Keras keeps them"
    for other, (_, letters, _) in KINDS.items():
        if ih[0] == hh[0] == len(letters) * hh[1]:
            return f"; {len(letters)} gate(s) of {hh[1]} units are those of {other}"
    return ""


def in_torchs_order(kind: str, gates: str | None, key: str, array: Array) -> Array:
    """``array``, whose rows are gates in the order ``gates``, with the gates in torch's.

    Raises WeightsError if ``gates`` is no order of the kind's.
    """
    own = KINDS[kind][1]
    if gates is None or gates == own or key.startswith("weight_hr"):
        return array
    if sorted(gates) != sorted(own):
        raise WeightsError(
            f"gates {gates!r} is not an order of {kind}'s {', '.join(own)}; torch's is {own!r}"
        )
    parts = dict(zip(gates, np.split(array, len(own)), strict=True))
    return np.concatenate([parts[g] for g in own])


def recurrent_spec(
    name: str, sizes: Sizes, params: Mapping[str, Array], *, batch_first: bool = False,
    initial_state: bool = False, lengths: bool = False, **attrs: Any,
) -> ModelSpec:  # fmt: skip
    """The module as a model: x ``[T, N, I]`` (``[N, T, I]`` if ``batch_first``), then, if asked for, h0
    ``[L*D, N, P]``, of LSTMs c0 ``[L*D, N, H]``, and lengths ``[N]``; T and N free. It gives y, h, of
    LSTMs c.
    """
    op, _, own = KINDS[sizes.kind]
    g, (steps, batch) = GraphBuilder(name), _EXAMPLE
    g.params |= params
    states = 2 if op == "lstm" else 1
    widths = (sizes.projected, sizes.hidden)[:states]
    rows = sizes.layers * sizes.directions
    free: tuple[str | int, ...] = ("N", "T", sizes.inputs) if batch_first else ("T", "N", sizes.inputs)
    x = g.input("x", free, tuple({"T": steps, "N": batch}.get(str(d), sizes.inputs) for d in free))
    given = []
    if initial_state:
        for label, width in zip(("h0", "c0"), widths, strict=False):
            given.append(g.input(label, (rows, "N", width), (rows, batch, width)))
    tail = [g.input("lengths", ("N",), (batch,), "int64")] if lengths else []
    if batch_first:
        x = g.add("permute", "time_first", x, order=(1, 0, 2))
    ends: list[list[str]] = [[] for _ in range(states)]
    for layer in range(sizes.layers):
        sides = []
        for d, side in enumerate(("", "_reverse")[: sizes.directions]):
            place, end = f"l{layer}{side}", f"_l{layer}{side}"
            row = layer * sizes.directions + d
            before = []
            for state, width in zip(given, widths, strict=False):
                part = g.add("slice", f"{place}.{state}", state, axis=0, start=row, stop=row + 1)
                before.append(g.add("reshape", f"{place}.{state}", part, shape=(-1, width)))
            roles = {key.removesuffix(end): key for key in sizes.wanted() if key.endswith(end)}
            made = g.add(
                op, place, x, *before, *tail, params=roles, reverse=bool(d), initial_state=initial_state,
                lengths=lengths, **own, **attrs,
            )  # fmt: skip
            h = made
            if sizes.projected < sizes.hidden:
                h = g.add("slice", f"{place}.part", made, axis=2, stop=sizes.projected)
            sides.append(g.add("slice", f"{place}.y", h, axis=0, stop=-states))
            for i, source in enumerate((h, made)[:states]):
                stop = i + 1 - states or None
                last = g.add("slice", f"{place}.{'hc'[i]}", source, axis=0, start=i - states, stop=stop)
                ends[i].append(last)
        x = sides[0] if len(sides) == 1 else g.add("concat", f"l{layer}.y", *sides, axis=2)
    y = g.add("permute", "y", x, order=(1, 0, 2)) if batch_first else x
    finals = [
        parts[0] if len(parts) == 1 else g.add("concat", label, *parts, axis=0)
        for label, parts in zip(("h", "c"), ends, strict=False)
    ]
    return g.build(y, *finals)
