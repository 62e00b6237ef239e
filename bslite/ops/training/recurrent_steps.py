"""The time steps of recurrent layers, and their gradients: what a layer is where its weights are values.

The products with x are the first input, so that a layer is two nodes: a linear layer over all steps, and the
loop over time, which holds the products with h alone. The loop backwards makes the gradients of all sums
before the gates; those of the weights, of x and of biases are a product or a sum each over all steps.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from bslite.errors import SpecError, UnsupportedError
from bslite.ops import attrs as a
from bslite.ops import checks
from bslite.ops.core import Attr, Attrs, Case, ParamShapes, Shape, get, parse_attrs
from bslite.ops.recurrent import ENDS, Gru, Recurrent, Rnn
from bslite.ops.values import Applied, Gradients, Param, Value

KEEPS = Attr("keeps", a.boolean, False, "makes what the gradient needs instead")


class Looped(Recurrent):
    """Base of the loops: inputs are ``leading``, then the initial state and the lengths."""

    params = {}
    sample_range = (-0.5, 0.5)  # the weight is an input among others: noise of size 1 would saturate gates

    def recurs_of(self, w: Shape) -> int:
        """The number of hidden units; checks the recurrent weight."""
        checks.rank(self.name, w, 2, f"weight_hh [{self.gates}*H, H]")
        if w[0] != self.gates * w[1]:
            raise SpecError(
                f"op {self.name!r}: weight_hh {list(w)} is not {self.gates} gates of {w[1]} units each"
            )
        return w[1]

    def flops(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        t, n, _ = ins[0]
        rows, hidden = ins[1]
        return t * n * rows * (2 * hidden + 10)

    def as_nodes(self, ins: Sequence[Value], params: Mapping[str, Param], attrs: Attrs) -> Value | None:
        return None


class Steps(Looped):
    """Base of the loops forwards. ``[T, N, G*H]`` products with x, their bias added; ``weight_hh`` and
    ``bias_hh``. Makes what the layer makes; if it ``keeps``, ``[T + 1, N, K*H]`` instead: of each step the
    gates and the state, h last; behind them the last state, the gates zero.
    """

    arity = (3, 6)
    attrs: ClassVar[tuple[Attr, ...]] = (*ENDS, KEEPS)
    leading = ("products with x", "weight_hh", "bias_hh")
    deltas: ClassVar[str]

    def kept(self, attrs: Attrs) -> int:
        """The numbers kept for a hidden unit and a time step; 1: its output alone."""
        raise NotImplementedError

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x, w, bias = ins[:3]
        checks.rank(self.name, x, 3, f"products with x [T, N, {self.gates}*H]")
        hidden = self.recurs_of(w)
        if x[2] != w[0] or bias != (w[0],):
            raise SpecError(
                f"op {self.name!r}: products with x {list(x)} and bias_hh {list(bias)} do not fit weight_hh "
                f"{list(w)}, expected {w[0]} features"
            )
        made = self.made(ins, hidden, {"weight_hh": w}, attrs)
        return (x[0] + 1, x[1], self.kept(attrs) * hidden) if attrs.get("keeps") else made

    def keep(self, inputs: Sequence[Value], attrs: Attrs) -> tuple[Value, Value] | None:
        count = self.kept(attrs)
        if count == 1 or attrs["keeps"]:
            return None
        kept = inputs[0].tape.put(self.name, inputs, **{**attrs, "keeps": True})
        steps, hidden = inputs[0].shape[0], inputs[1].shape[1]
        y = kept.sliced(2, (count - 1) * hidden, count * hidden)
        if self.states == 1:
            return y, kept
        c = kept.sliced(0, steps, steps + 1).sliced(2, (count - 2) * hidden, (count - 1) * hidden)
        return y.op("concat", c, axis=0), kept

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        if at.attrs.get("keeps"):
            raise UnsupportedError(f"op {self.name!r} has no gradient of what it keeps")
        own = {name: value for name, value in at.attrs.items() if name != "keeps"}
        x, weight, _, *ends = at.inputs
        steps, hidden = x.shape[0], weight.shape[1]
        kept = at.output if at.kept is None else at.kept
        put = x.tape.put
        deltas = put(self.deltas, [kept, weight, grad, *ends], **own)
        made: dict[int | str, Value] = {}
        if own["initial_state"]:
            states = deltas.sliced(0, steps, steps + 1).reshape(*deltas.shape[1:])
            for i in range(self.states):
                made[3 + i] = states.sliced(1, i * hidden, (i + 1) * hidden)
            deltas = deltas.sliced(0, 0, steps)
        made[0] = deltas.sliced(2, 0, self.gates * hidden)
        return made | self.by_weights(at, deltas, kept, own)

    def by_weights(self, at: Applied, deltas: Value, kept: Value, attrs: Attrs) -> dict[int | str, Value]:
        """The gradients of weight_hh and bias_hh, inputs 1 and 2."""
        h = before(at, attrs)
        return {1: by_weight(deltas, h, at.inputs[1]), 2: deltas.sum(0, 1)}

    def looped(self, c: Case, keeps: bool | None = None) -> Case:
        """A case of the layer as one of its loop."""
        (t, n, _), rows = c.inputs[0], c.params["weight_hh"]
        inputs = [(t, n, rows[0]), rows, (rows[0],), *c.inputs[1:]]
        dtypes = ["float32"] * 3 + list(c.dtypes[1:])
        label, attrs = (f"{c.label}, kept", {**c.attrs, "keeps": True}) if keeps else (c.label, c.attrs)
        return Case(label, inputs, {}, attrs, dtypes, c.integers)

    def plain_cases(self) -> list[Case]:
        """Cases of the layer."""
        return [
            self.case("one of everything", 1, 1, 1, 1),
            self.case("one step, from a state", 1, 2, 1, 16, state=True),
            self.case("odd sizes", 4, 3, 1, 37, state=True),
            self.case("backwards", 5, 2, 1, 20, reverse=True),
            self.case("lengths", 4, 5, 1, 18, lengths=True),
            self.case(
                "lengths, backwards, from a state", 6, 4, 1, 19, lengths=True, reverse=True, state=True
            ),
            self.case("a larger batch", 3, 23, 1, 48),
            self.case("a long sum", 2, 2, 1, 264, state=True),
        ]

    def cases(self) -> Sequence[Case]:
        plain = self.plain_cases()
        if self.kept(parse_attrs(self, {})) == 1:
            return [self.looped(c) for c in plain]
        return [*(self.looped(c) for c in plain[1::2]), *(self.looped(c, keeps=True) for c in plain)]


def before(at: Applied, attrs: Attrs) -> tuple[Value, int] | None:
    """h before each step, and the first time step of it: without those where it is zero, which may be all."""
    steps, reverse = at.inputs[0].shape[0], attrs["reverse"]
    h = at.output
    rest = (h.sliced(0, 1, steps) if reverse else h.sliced(0, 0, steps - 1)) if steps > 1 else None
    if not attrs["initial_state"]:
        return None if rest is None else (rest, 0 if reverse else 1)
    start = at.inputs[3].reshape(1, *at.inputs[3].shape)
    if rest is None:
        return start, 0
    if not reverse:
        return start.op("concat", rest, axis=0), 0
    whole = rest.op("concat", start, axis=0)
    if attrs["lengths"]:  # each sequence begins at its own end, behind which h is zero
        ends = h.tape.constant([[[t + 1]] for t in range(steps)], "int64")
        begins = ends.op("equal", at.inputs[-1].reshape(1, start.shape[1], 1))
        whole = begins.where(start, whole)
    return whole, 0


def by_weight(deltas: Value, h: tuple[Value, int] | None, weight: Value) -> Value:
    """The gradient of a weight ``[rows, H]``, as a linear layer has it: sums over steps of ``deltas^T h``."""
    if h is None:
        return weight.tape.constant(0.0).expand(weight.shape)
    rows, first = h
    used = deltas.sliced(0, first, first + rows.shape[0])
    made = get("linear").vjp(Applied((rows,), used, {"weight": weight}, {}), used)["weight"]
    assert isinstance(made, Value)
    return made


class LstmSteps(Steps):
    """The time steps of an `lstm`. It keeps input, forget, cell and output gate, c, h."""

    name = "lstm_steps"
    order, gates, states = "ifgo", 4, 2
    deltas = "lstm_deltas"

    def kept(self, attrs: Attrs) -> int:
        return 6


class GruSteps(Steps):
    """The time steps of a `gru`. It keeps reset, update and new gate, then (``reset_after``) the product of
    weight_hh that the reset gate is applied to, bias included; then h.
    """

    name = "gru_steps"
    order, gates = "rzn", 3
    arity = (3, 5)
    attrs = (*Gru.attrs, KEEPS)
    deltas = "gru_deltas"

    def kept(self, attrs: Attrs) -> int:
        return 5 if attrs["reset_after"] else 4

    def by_weights(self, at: Applied, deltas: Value, kept: Value, attrs: Attrs) -> dict[int | str, Value]:
        weight, h = at.inputs[1], before(at, attrs)
        hidden = weight.shape[1]
        gates, last = deltas.sliced(2, 0, 2 * hidden), deltas.shape[2] - hidden
        new = deltas.sliced(2, last, last + hidden)
        seen = h
        if h is not None and not attrs["reset_after"]:
            reset = kept.sliced(0, h[1], h[1] + h[0].shape[0]).sliced(2, 0, hidden)
            seen = h[0] * reset, h[1]
        parts = [
            by_weight(gates, h, weight.sliced(0, 0, 2 * hidden)),
            by_weight(new, seen, weight.sliced(0, 2 * hidden, 3 * hidden)),
        ]
        return {
            1: parts[0].op("concat", parts[1], axis=0),
            2: gates.sum(0, 1).op("concat", new.sum(0, 1), axis=0),
        }

    def plain_cases(self) -> list[Case]:
        return [
            *super().plain_cases(),
            self.case("reset before", 3, 2, 1, 21, reset_after=False),
            self.case(
                "reset before, all", 4, 4, 1, 40, reset_after=False, state=True, lengths=True, reverse=True
            ),
        ]


class RnnSteps(Steps):
    """The time steps of an `rnn`, whose gradient needs its output alone."""

    name = "rnn_steps"
    order, gates = "h", 1
    arity = (3, 5)
    attrs = Rnn.attrs
    deltas = "rnn_deltas"

    def kept(self, attrs: Attrs) -> int:
        return 1

    def plain_cases(self) -> list[Case]:
        return [*super().plain_cases(), self.case("relu", 4, 3, 1, 21, activation="relu", state=True)]


class Deltas(Looped):
    """Base of the loops backwards. Inputs: ``[T + 1, N, K*H]``, what the loop forwards keeps; weight_hh; the
    gradient of what the layer makes; the initial state, if any, and the lengths. Makes ``[T, N, D*H]``, the
    gradients of the sums before the gates, zero behind a sequence's end; with an initial state ``[T + 1, N,
    D*H]``, the gradients of that in the last row.
    """

    arity = (3, 6)
    leading = ("what is kept", "weight_hh", "the gradient")
    of: ClassVar[Steps]

    def made_by(self, attrs: Attrs) -> int:
        """The numbers made for a hidden unit and a time step."""
        return self.gates

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        kept, w, grad = ins[:3]
        hidden = self.recurs_of(w)
        checks.rank(self.name, kept, 3, "what is kept [T + 1, N, K*H]")
        steps, batch = kept[0] - 1, kept[1]
        count = self.of.kept(attrs)
        if kept[2] != count * hidden:
            raise SpecError(
                f"op {self.name!r}: what is kept {list(kept)} has {kept[2]} features, expected {count} of "
                f"each of {hidden} hidden units"
            )
        if grad != (made := (steps + self.states, batch, hidden)):
            raise SpecError(f"op {self.name!r}: the gradient is {list(grad)}, expected {list(made)}")
        self.made([(steps, batch, 0), *ins[1:]], hidden, {"weight_hh": w}, attrs)
        return (steps + attrs["initial_state"], batch, self.made_by(attrs) * hidden)

    def cases(self) -> Sequence[Case]:
        return [self.backwards(c) for c in self.of.plain_cases()]

    def backwards(self, c: Case) -> Case:
        """A case of the layer as one of the loop backwards."""
        (t, n, _), rows = c.inputs[0], c.params["weight_hh"]
        attrs = parse_attrs(self, c.attrs)
        hidden = rows[1]
        inputs = [(t + 1, n, self.of.kept(attrs) * hidden), rows, (t + self.states, n, hidden), *c.inputs[1:]]
        return Case(c.label, inputs, {}, c.attrs, ["float32"] * 3 + list(c.dtypes[1:]), c.integers)


class LstmDeltas(Deltas):
    """The gradients of an LSTM's sums: input, forget, cell, output gate; behind them those of h and c."""

    name = "lstm_deltas"
    order, gates, states = "ifgo", 4, 2
    attrs = ENDS
    of = LstmSteps()


class GruDeltas(Deltas):
    """The gradients of a GRU's sums: reset, update, new gate; with ``reset_after`` then that of the product
    which the reset gate is applied to.
    """

    name = "gru_deltas"
    order, gates = "rzn", 3
    arity = (3, 5)
    attrs = Gru.attrs
    of = GruSteps()

    def made_by(self, attrs: Attrs) -> int:
        return 4 if attrs["reset_after"] else 3


class RnnDeltas(Deltas):
    """The gradients of an RNN's sums."""

    name = "rnn_deltas"
    order, gates = "h", 1
    arity = (3, 5)
    attrs = Rnn.attrs
    of = RnnSteps()
