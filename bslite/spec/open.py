"""`OpenModel`: a model that is another ModelSpec for other sizes of its inputs."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bslite.spec.model import ModelSpec
from bslite.spec.ports import Port


@dataclass(frozen=True)
class Settled:
    """An `OpenModel` for the inputs of one call: its ``spec``, which takes those of them that are ``inputs``.

    ``known`` has the outputs in order that need no computing, None for the others, which ``spec`` makes.
    ``spec`` is None where all of them are known.
    """

    spec: ModelSpec | None
    inputs: list[Any]
    known: Sequence[Any]

    def outputs(self, made: Sequence[Any]) -> list[Any]:
        """All outputs in order, from those that ``spec`` made."""
        rest = iter(made)
        return [next(rest) if known is None else known.copy() for known in self.known]


class OpenModel(ABC):
    """A model that is no ModelSpec with all of its open sizes left free. ``inputs``: what a caller gives."""

    inputs: tuple[Port, ...]

    @abstractmethod
    def settle(self, given: Sequence[Any]) -> Settled:
        """The model for one array or tensor per input. InputError if they are not what it takes."""
