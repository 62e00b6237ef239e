"""What is to be run: one recurrent network, as plain numbers."""

from dataclasses import dataclass

from bslite.errors import SpecError
from bslite.ops.recurrent import CELLS

#: What is searched: not the LSTM that rounds its state, for which no cycles are counted.
KINDS = {kind: op for kind, op in CELLS.items() if kind != "lstm_rounded"}
#: Gates of a cell: rows of its weight matrices per hidden unit.
GATES = {kind: op.gates for kind, op in KINDS.items()}
#: Vectors of state that go from one time step to the next: h, and for the LSTM c.
STATES = {kind: op.states for kind, op in KINDS.items()}
FLOAT = 4  # bytes


@dataclass(frozen=True)
class Recurrent:
    """``layers`` recurrent layers of ``hidden`` units over ``steps`` time steps of ``inputs`` features.

    The cells are torch's: LSTM, GRU (reset gate applied after the product with h), RNN with tanh; one
    direction, weights in float32. Raises SpecError naming what is wrong.
    """

    kind: str  # "lstm", "gru" or "rnn"
    hidden: int
    inputs: int
    steps: int
    batch: int
    layers: int = 1

    def __post_init__(self) -> None:
        if self.kind not in GATES:
            raise SpecError(f"recurrent problem: kind is {self.kind!r}, expected one of {', '.join(GATES)}")
        for name in ("hidden", "inputs", "steps", "batch", "layers"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise SpecError(f"recurrent problem: {name} must be a whole number from 1 up, got {value!r}")

    @property
    def gates(self) -> int:
        """Gates of a cell."""
        return GATES[self.kind]

    @property
    def states(self) -> int:
        """Vectors of state between time steps."""
        return STATES[self.kind]

    def features(self, layer: int) -> int:
        """Features that ``layer`` takes in: ``inputs`` for the first, ``hidden`` behind it."""
        return self.hidden if layer else self.inputs

    def layer(self, layer: int) -> "Recurrent":
        """The problem of one layer alone."""
        return Recurrent(self.kind, self.hidden, self.features(layer), self.steps, self.batch)

    @property
    def input_weights(self) -> int:
        """Weights that meet inputs, of all layers: ``[gates*hidden, features]`` each."""
        rows = self.gates * self.hidden
        return sum(rows * self.features(i) for i in range(self.layers))

    @property
    def recurrent_weights(self) -> int:
        """Weights that meet h, of all layers: ``[gates*hidden, hidden]`` each."""
        return self.layers * self.gates * self.hidden * self.hidden

    @property
    def weights(self) -> int:
        """All weights; each is used once per time step and sequence."""
        return self.input_weights + self.recurrent_weights

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights that a time step goes through (biases left out)."""
        return FLOAT * self.weights

    @property
    def recurrent_weight_bytes(self) -> int:
        """Bytes of the weights that cannot be multiplied before the step's h is known."""
        return FLOAT * self.recurrent_weights

    @property
    def flops_per_step(self) -> int:
        """Operations of one time step of the batch; a multiply-add counts 2, a gate's functions 10."""
        return self.batch * (2 * self.weights + 10 * self.layers * self.gates * self.hidden)

    @property
    def flops(self) -> int:
        """Operations of the whole run."""
        return self.steps * self.flops_per_step

    def __str__(self) -> str:
        layers = f", {self.layers} layers" if self.layers > 1 else ""
        inputs = f", {self.inputs} inputs" if self.inputs != self.hidden else ""
        return f"{self.kind} {self.hidden}{inputs}, {self.steps} steps, batch {self.batch}{layers}"
