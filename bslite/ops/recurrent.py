"""Recurrent layers: LSTM, GRU and the plain RNN, one layer and one direction each.

All take ``x [T, N, I]``, then, where their attributes say so, the initial state and the lengths ``[N]`` of
the sequences; and make ``[T + states, N, H]``: the output of every time step, and behind it the state after a
sequence's last step (h; for the LSTM h, then c). Behind its length a sequence's outputs are zero. With
``reverse`` each sequence is gone through from its own end; outputs stay where their inputs are.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from bslite.errors import SpecError, UnsupportedError
from bslite.ops import attrs as a
from bslite.ops import checks
from bslite.ops.core import INTEGERS, REGISTRY, Attr, Attrs, Case, Kind, Op, ParamShapes, Shape
from bslite.ops.integer import WHOLE
from bslite.ops.values import Applied, Gradients, Param, Value

ENDS = (
    Attr("reverse", a.boolean, False, "from the end of each sequence"),
    Attr("initial_state", a.boolean, False, "the inputs after x are the state before the first step"),
    Attr("lengths", a.boolean, False, "the last input holds the sequences' lengths, 1 to T"),
)


class Recurrent(Op):
    """Base of the recurrent layers."""

    kind = Kind.CONTRACTION
    order: ClassVar[str]  # of the gates in the rows of the weights, a letter each
    gates: ClassVar[int]
    states: ClassVar[int] = 1
    params = {"weight_ih": True, "weight_hh": True, "bias_ih": False, "bias_hh": False}
    leading: ClassVar[tuple[str, ...]] = ("x",)  # the inputs before the initial state and the lengths
    may_fail = True

    def span(self, i: int) -> tuple[int, int | None]:
        """Start and stop along axis 0 of the outputs (``i`` = 0) or of the ``i``-th last state, counted from
        the end: the number of time steps may be free.
        """
        return (i - 1 - self.states, i - self.states or None) if i else (0, -self.states)

    def dtype(self, ins: Sequence[str], params: Mapping[str, str], attrs: Attrs) -> str:
        if attrs["lengths"] and ins[-1] not in INTEGERS:
            raise SpecError(
                f"op {self.name!r}: the lengths (input {len(ins) - 1}) are {ins[-1]}, expected int64"
            )
        return super().dtype(ins[: len(ins) - attrs["lengths"]], params, attrs)

    def width(self, params: ParamShapes) -> int:
        """The number of features of h."""
        return params["weight_hh"][1]

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x, w, recurrent = ins[0], params["weight_ih"], params["weight_hh"]
        checks.rank(self.name, x, 3, "x [T, N, I]")
        checks.rank(self.name, w, 2, f"weight_ih [{self.gates}*H, I]")
        checks.rank(self.name, recurrent, 2, f"weight_hh [{self.gates}*H, H]")
        if w[0] % self.gates:
            raise SpecError(f"op {self.name!r}: weight_ih {list(w)} is not {self.gates} gates of one size")
        hidden = w[0] // self.gates
        if x[2] != w[1]:
            raise SpecError(
                f"op {self.name!r}: x {list(x)} has {x[2]} features, weight_ih {list(w)} expects {w[1]}"
            )
        checks.param_shape(self.name, "weight_hh", recurrent, (w[0], self.recurs(hidden, params)), "")
        for role in ("bias_ih", "bias_hh"):
            if role in params:
                checks.param_shape(self.name, role, params[role], (w[0],), "(one per row of the weights)")
        return self.made(ins, hidden, params, attrs)

    def made(self, ins: Sequence[Shape], hidden: int, params: ParamShapes, attrs: Attrs) -> Shape:
        """The output's shape; checks the inputs after the first."""
        x, given = ins[0], list(ins[len(self.leading) :])
        want = (self.states if attrs["initial_state"] else 0) + attrs["lengths"]
        if len(given) != want:
            raise SpecError(
                f"op {self.name!r} got {len(ins)} inputs, expected {want + len(self.leading)}: "
                + ", ".join(self.leading)
                + (", the initial state" if attrs["initial_state"] else "")
                + (", the lengths" if attrs["lengths"] else "")
            )
        if attrs["lengths"] and (lengths := given.pop()) != (x[1],):
            raise SpecError(
                f"op {self.name!r}: the lengths are {list(lengths)}, expected [{x[1]}] for x {list(x)}"
            )
        for what, state, size in zip(("h", "c"), given, (self.width(params), hidden), strict=False):
            if state != (x[1], size):
                raise SpecError(
                    f"op {self.name!r}: the initial {what} is {list(state)}, expected [{x[1]}, {size}]"
                )
        return (x[0] + self.states, x[1], hidden)

    def recurs(self, hidden: int, params: ParamShapes) -> int:
        """The number of features of h that weight_hh must take."""
        return hidden

    def flops(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        t, n, _ = ins[0]
        products = math.prod(params["weight_ih"]) + math.prod(params["weight_hh"])
        products += math.prod(params.get("weight_hr", (0,)))
        return t * n * (2 * products + 10 * out[2] * self.gates)

    def keeps_images_apart(self, ranks: Sequence[int], attrs: Attrs) -> bool:
        return False  # the batch is not axis 0

    def as_nodes(self, ins: Sequence[Value], params: Mapping[str, Param], attrs: Attrs) -> Value | None:
        """A linear layer, and the loop `NAME_steps`."""
        if set(params) - set(Recurrent.params):
            return None
        tape = ins[0].tape
        weights = {r: params[f"{r}_ih"] for r in ("weight", "bias") if f"{r}_ih" in params}
        products = tape.put("linear", ins[:1], weights)

        def value(role: str) -> Value:
            p = params[role]
            return p if isinstance(p, Value) else tape.stored(p)

        weight = value("weight_hh")
        bias = value("bias_hh") if "bias_hh" in params else tape.constant([0.0] * weight.shape[0])
        return tape.put(f"{self.name}_steps", [products, weight, bias, *ins[1:]], **attrs)

    def with_values(self, ins: Sequence[Value], params: Mapping[str, Value], attrs: Attrs) -> Value:
        found = self.as_nodes(ins, params, attrs)
        if found is None:
            more = sorted(set(params) - set(Recurrent.params))
            raise UnsupportedError(f"op {self.name!r} with {', '.join(more)} takes constants, no values")
        return found

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        more = sorted(set(at.params) - set(Recurrent.params))
        raise UnsupportedError(f"op {self.name!r}{' with ' if more else ''}{', '.join(more)} has no gradient")

    def case(
        self, label: str, t: int, n: int, size: int, hidden: int, *, biased: bool = True, state: bool = False,
        lengths: bool = False, **attrs: object,
    ) -> Case:  # fmt: skip
        """A sample case."""
        k = self.gates * hidden
        params: dict[str, Shape] = {"weight_ih": (k, size), "weight_hh": (k, hidden)}
        if biased:
            params |= {"bias_ih": (k,), "bias_hh": (k,)}
        inputs: list[Shape] = [(t, n, size)] + [(n, hidden)] * (self.states if state else 0)
        dtypes = ["float32"] * len(inputs)
        if lengths:
            inputs, dtypes = [*inputs, (n,)], [*dtypes, "int64"]
        given = {"initial_state": state, "lengths": lengths, **attrs}
        return Case(label, inputs, params, given, dtypes, integers=(1, t + 1))

    def cases(self) -> Sequence[Case]:
        return [
            self.case("one of everything", 1, 1, 1, 1),
            self.case("one step", 1, 2, 5, 16),
            self.case("no bias", 4, 1, 7, 9, biased=False),
            self.case("odd sizes", 6, 3, 19, 37, state=True),
            self.case("backwards", 5, 2, 8, 20, reverse=True),
            self.case("backwards from a state", 3, 2, 8, 20, reverse=True, state=True),
            self.case("lengths", 7, 5, 6, 18, lengths=True),
            self.case(
                "lengths, backwards, from a state", 7, 5, 6, 18, lengths=True, reverse=True, state=True
            ),
            self.case("a larger batch", 4, 23, 33, 48, state=True),
            self.case("a long sum", 2, 2, 24, 1040),
            self.case("a long sequence", 60, 1, 3, 32),
        ]


class Lstm(Recurrent):
    """Long short-term memory, gates in torch's order: input, forget, cell, output. Makes outputs, h, c.
    ``weight_hr`` projects h; ``peephole`` ``[3*H]`` lets the input, forget and output gates see c.
    """

    name = "lstm"
    order, gates, states = "ifgo", 4, 2
    arity = (1, 4)
    params = {**Recurrent.params, "weight_hr": False, "peephole": False}
    attrs = ENDS
    torch_name = "lstm"
    onnx_name = "LSTM"

    def recurs(self, hidden: int, params: ParamShapes) -> int:
        if "weight_hr" in params:
            checks.rank(self.name, params["weight_hr"], 2, "weight_hr [P, H]")
            projected = params["weight_hr"][0]
            checks.param_shape(
                self.name, "weight_hr", params["weight_hr"], (min(projected, hidden), hidden), ""
            )
            return projected
        if "peephole" in params:
            checks.param_shape(
                self.name, "peephole", params["peephole"], (3 * hidden,), "(input, forget, output)"
            )
        return hidden

    def cases(self) -> Sequence[Case]:
        k = 4 * 24
        weights: dict[str, Shape] = {"weight_ih": (k, 7), "bias_ih": (k,), "bias_hh": (k,)}
        projected = {**weights, "weight_hh": (k, 11), "weight_hr": (11, 24)}
        return [
            *super().cases(),
            Case("projected", [(5, 3, 7)], projected),
            Case(
                "projected, from a state, backwards", [(5, 3, 7), (3, 11), (3, 24), (3,)], projected,
                {"reverse": True, "initial_state": True, "lengths": True},
                ["float32"] * 3 + ["int64"], (1, 6),
            ),
            Case("peepholes", [(4, 2, 7)], {**weights, "weight_hh": (k, 24), "peephole": (72,)}),
        ]  # fmt: skip


class RoundedLstm(Lstm):
    """An LSTM whose products are of integers. Its first input ``[T, N, 4*H]`` is the products with x, biases
    added. h is rounded before its product: to 256 numbers in equal steps, 0 among them, from the least to the
    largest of h in all sequences of the batch. What it makes is not rounded.

    ``weight_hh`` is whole numbers; row ``i`` stands for ``weight_hh[i] * scale_hh[i]``. Sums of products are
    exact. The arithmetic of onnxruntime's DynamicQuantizeLSTM.
    """

    name = "lstm_rounded"
    params = {"weight_hh": True, "scale_hh": True, "peephole": False}
    torch_name = ""
    onnx_name = "com.microsoft.DynamicQuantizeLSTM"

    def dtype(self, ins: Sequence[str], params: Mapping[str, str], attrs: Attrs) -> str:
        if params["weight_hh"] not in WHOLE:
            raise SpecError(
                f"op {self.name!r}: parameter 'weight_hh' is {params['weight_hh']}, expected "
                + " or ".join(WHOLE)
            )
        return super().dtype(ins, {r: d for r, d in params.items() if r != "weight_hh"}, attrs)

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x, recurrent = ins[0], params["weight_hh"]
        checks.rank(self.name, x, 3, "products with x [T, N, 4*H]")
        checks.rank(self.name, recurrent, 2, "weight_hh [4*H, H]")
        if x[2] % self.gates:
            raise SpecError(f"op {self.name!r}: products {list(x)} are not {self.gates} gates of one size")
        hidden = x[2] // self.gates
        checks.param_shape(self.name, "weight_hh", recurrent, (x[2], self.recurs(hidden, params)), "")
        checks.param_shape(self.name, "scale_hh", params["scale_hh"], (x[2],), "(one per row of the weights)")
        return self.made(ins, hidden, params, attrs)

    def flops(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        t, n, rows = ins[0]
        return t * n * (2 * math.prod(params["weight_hh"]) + 10 * rows)

    def whole(self, plain: Case, dtype: str = "int8") -> Case:
        """A case of an LSTM as one of this op."""
        roles = {r: s for r, s in plain.params.items() if r in self.params}
        rows = roles["weight_hh"][0]
        inputs = [(*plain.inputs[0][:2], rows), *plain.inputs[1:]]
        params = {**roles, "scale_hh": (rows,)}
        return replace(plain, inputs=inputs, params=params, param_dtypes={"weight_hh": dtype})

    def cases(self) -> Sequence[Case]:
        peepholes: dict[str, Shape] = {"weight_hh": (96, 24), "peephole": (72,)}
        return [
            self.whole(self.case("one of everything", 1, 1, 1, 1)),
            self.whole(self.case("one step from a state", 1, 2, 5, 16, state=True)),
            self.whole(self.case("odd sizes", 4, 3, 19, 37, state=True)),
            self.whole(self.case("backwards", 3, 2, 8, 20, reverse=True)),
            self.whole(self.case("lengths", 4, 5, 6, 18, lengths=True)),
            self.whole(self.case("weights of more than 8 bits", 3, 2, 5, 21), "int32"),
            self.whole(Case("peepholes", [(3, 2, 7)], peepholes)),
        ]


class Gru(Recurrent):
    """Gated recurrent unit, gates in torch's order: reset, update, new. Makes outputs, h. ``reset_after``
    applies the reset gate to the product with weight_hh, bias included, as torch and cuDNN do (ONNX's
    linear_before_reset); without it, the gate is applied to h before the product.
    """

    name = "gru"
    order, gates = "rzn", 3
    arity = (1, 3)
    attrs = (*ENDS, Attr("reset_after", a.boolean, True))
    torch_name = "gru"
    onnx_name = "GRU"

    def cases(self) -> Sequence[Case]:
        return [
            *super().cases(),
            self.case("reset before", 5, 3, 8, 21, reset_after=False),
            self.case(
                "reset before, all", 6, 4, 8, 40, reset_after=False, state=True, lengths=True, reverse=True
            ),
            self.case("reset before, long sum", 3, 2, 8, 1040, reset_after=False),
        ]


class Rnn(Recurrent):
    """``h = f(weight_ih x + bias_ih + weight_hh h + bias_hh)``, f tanh or ReLU."""

    name = "rnn"
    order, gates = "h", 1
    arity = (1, 3)
    attrs = (*ENDS, Attr("activation", a.choice("tanh", "relu"), "tanh"))
    torch_name = "rnn_tanh, rnn_relu"
    onnx_name = "RNN"

    def cases(self) -> Sequence[Case]:
        return [*super().cases(), self.case("relu", 5, 3, 8, 21, activation="relu", state=True)]


#: The recurrent ops by name.
CELLS = {op.name: op for op in REGISTRY.values() if isinstance(op, Recurrent)}
