"""What a compiled model asks of the thing that computes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bslite.arithmetic import Precision
from bslite.compiled.outputs import Outputs
from bslite.spec.ports import Port


@dataclass(frozen=True)
class Options:
    """How a model is compiled."""

    device: str = "cpu"
    threads: int | None = None
    precision: Precision = Precision.FLOAT32


class Runner(Protocol):
    """A model of one kind (spec, ONNX file, torch module) ready to compute."""

    @property
    def name(self) -> str:
        """The model's name."""

    @property
    def inputs(self) -> tuple[Port, ...]:
        """What a call takes, in order."""

    @property
    def model(self) -> Any:
        """What computes: a ModelSpec, an OpenModel or a module."""

    @property
    def outputs(self) -> tuple[Port, ...]:
        """What a call returns, in order; empty as long as it is not known."""

    def call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Outputs:
        """The results by name."""

    def pieces(self) -> list[str]:
        """Lines on where it runs."""

    def memory(self) -> dict[str, int]:
        """Bytes held: of ``weights``, packed for the engine, and of ``values`` between layers."""

    def close(self) -> None:
        """Let go of plans, packed weights and values."""
