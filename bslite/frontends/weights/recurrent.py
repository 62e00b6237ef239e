"""An LSTM, GRU or RNN from weights alone, under the names torch's modules give them: ``weight_ih_l0``, ..."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bslite.errors import WeightsError
from bslite.frontends.common.recurrent import KINDS, in_order, stacked
from bslite.ops import Shape
from bslite.spec import Array, GraphBuilder, ModelSpec

_KEY = re.compile(r"(weight_ih|weight_hh|weight_hr|bias_ih|bias_hh)_l(\d+)(_reverse)?")
_EXAMPLE = (4, 2)  # steps, sequences


@dataclass(frozen=True)
class Sizes:
    """The sizes of a module, read off its weights."""

    kind: str
    inputs: int
    hidden: int
    projected: int  # features of h; `hidden` where nothing is projected
    layers: int
    directions: int
    biased: bool

    @property
    def gates(self) -> int:
        return KINDS[self.kind][0].gates

    def wanted(self) -> dict[str, Shape]:
        """The shape of every parameter."""
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
    """The sizes that the shapes and names of the weights say; WeightsError if they make no ``kind``."""
    found = [m for m in map(_KEY.fullmatch, shapes) if m]
    absent = [key for key in ("weight_ih_l0", "weight_hh_l0") if key not in shapes]
    if absent:
        raise WeightsError(
            f"the weights do not fit {kind}: missing {', '.join(absent)}, from which its sizes are read; "
            f"there is: {', '.join(list(shapes)[:6]) or 'nothing'}"
        )
    ih, hh, gates = shapes["weight_ih_l0"], shapes["weight_hh_l0"], KINDS[kind][0].gates
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
    """What the shapes look like, as the end of a message; or ""."""
    gates = KINDS[kind][0].gates
    if hh[1] == gates * hh[0]:
        return "; they look transposed, [I, gates*H] as Keras keeps them"
    for other, (op, _) in KINDS.items():
        if ih[0] == hh[0] == op.gates * hh[1]:
            return f"; {op.gates} gate(s) of {hh[1]} units are those of {other}"
    return ""


def in_torchs_order(kind: str, gates: str | None, key: str, array: Array) -> Array:
    """``array``, whose rows are gates in the order ``gates``, with the gates in torch's.

    Raises WeightsError if ``gates`` is no order of the kind's.
    """
    own = KINDS[kind][0].order
    if gates is None or key.startswith("weight_hr"):
        return array
    if sorted(gates) != sorted(own):
        raise WeightsError(
            f"gates {gates!r} is not an order of {kind}'s {', '.join(own)}; torch's is {own!r}"
        )
    return in_order(array, gates, own)


def recurrent_spec(
    name: str, sizes: Sizes, params: Mapping[str, Array], *, batch_first: bool = False,
    initial_state: bool = False, lengths: bool = False, **attrs: Any,
) -> ModelSpec:  # fmt: skip
    """The module as a model of x ``[T, N, I]`` (``[N, T, I]`` if ``batch_first``), with T and N free.

    Further inputs, if asked for, are h0 ``[L*D, N, P]``, for an LSTM c0 ``[L*D, N, H]``, and lengths ``[N]``.
    The outputs are y, h and, for an LSTM, c.
    """
    op, own = KINDS[sizes.kind]
    g, (steps, batch) = GraphBuilder(name), _EXAMPLE
    g.params |= params
    widths = (sizes.projected, sizes.hidden)[: op.states]
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

    def made(x: str, layer: int, d: int) -> list[str]:
        side = "_reverse" if d else ""
        place, end, row = f"l{layer}{side}", f"_l{layer}{side}", layer * sizes.directions + d
        before = []
        for state, width in zip(given, widths, strict=False):
            part = g.add("slice", f"{place}.{state}", state, axis=0, start=row, stop=row + 1)
            before.append(g.add("reshape", f"{place}.{state}", part, shape=(-1, width)))
        roles = {key.removesuffix(end): key for key in sizes.wanted() if key.endswith(end)}
        y = g.add(
            op.name, place, x, *before, *tail, params=roles, reverse=bool(d), initial_state=initial_state,
            lengths=lengths, **own, **attrs,
        )  # fmt: skip
        h = y
        if sizes.projected < sizes.hidden:
            h = g.add("slice", f"{place}.part", y, axis=2, stop=sizes.projected)
        return [
            g.add("slice", f"{place}.{'yhc'[i]}", source, axis=0, start=op.span(i)[0], stop=op.span(i)[1])
            for i, source in enumerate((h, h, y)[: 1 + op.states])
        ]

    def join(parts: list[str], axis: int, label: str) -> str:
        return parts[0] if len(parts) == 1 else g.add("concat", label, *parts, axis=axis)

    x, ends = stacked(x, sizes.layers, sizes.directions, made, join)
    y = g.add("permute", "y", x, order=(1, 0, 2)) if batch_first else x
    return g.build(y, *(join(parts, 0, label) for label, parts in zip("hc", ends, strict=False)))
