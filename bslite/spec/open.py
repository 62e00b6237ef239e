"""`OpenModel`: a model that is another ModelSpec for other sizes of its inputs, or several of them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bslite.errors import EngineError, InputError
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


@dataclass
class Ran:
    """What one piece of a model did in one run of the model, in all of its ``calls``.

    ``how``: "engine", or what else computes it; ``what``: which nodes; ``reason``: why it is a piece of its
    own. ``depth``: in how many bodies and branches it stands. ``seconds`` are its own, without those of the
    pieces inside it; ``at``: start and end of each call, from the start of the run. What the engine computes
    has a ``spec`` with the ``inputs`` of its first call.
    """

    how: str
    what: str
    reason: str
    depth: int
    nodes: int
    spec: ModelSpec | None
    inputs: list[Any]
    calls: int
    seconds: float
    at: list[tuple[float, float]]


class OpenModel(ABC):
    """A model that is no ModelSpec with all of its open sizes left free. ``inputs``: what a caller gives,
    ``outputs``: what it gets.
    """

    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Any, ...]
    #: Whether `in_pieces` runs it where one ModelSpec meets integers that the engine has not.
    divides = False

    @abstractmethod
    def settle(self, given: Sequence[Any]) -> Settled:
        """The model for one array or tensor per input. InputError if they are not what it takes,
        UnsupportedError if no ModelSpec computes it.
        """

    def uncut(self, given: Sequence[Any]) -> Settled | None:
        """As `settle`; None if it takes more than one ModelSpec to compute it: `in_pieces` does."""
        return self.settle(given)

    def in_pieces(
        self, given: Sequence[Any], backend: str | None, threads: int | None, ran: list[Ran] | None = None
    ) -> list[Any]:
        """The outputs in order of a model that is cut, as `uncut` says; what each piece did is added to
        ``ran``.
        """
        raise AssertionError(f"model {self.name!r} is never cut")

    @abstractmethod
    def example(self, given: Mapping[str, Any], batch: int | None = None, seed: int = 0) -> list[Any]:
        """Inputs that it takes: arrays that are ``given`` by name, others drawn at random, of the shape that
        is given, or where none is, with such sizes as are tried when a file is read; ``batch`` for open sizes
        at axis 0. InputError if nothing is found.
        """


def behind(model: Any) -> Any:
    """What a compiled model computes: a ModelSpec, an OpenModel or a module; of others, ``model`` itself."""
    return getattr(model, "_bslite_model", model)


def asked(model: Any, backend: str | None, threads: int | None) -> tuple[Any, str | None, int | None]:
    """What a compiled model computes, with its device and threads where no others are given; another model
    as it is, with what is given.
    """
    if (found := behind(model)) is model:
        return model, backend, threads
    return found, backend or model.device, model.threads if threads is None else threads


def no_engine(backend: str) -> EngineError:
    """What to say where only an engine will do."""
    return EngineError(
        f"backend {backend!r} is not one of 'cpu', 'cuda'; of what is compiled for another device, say which"
    )


def in_order(model: Any, given: Any) -> list[Any]:
    """What is given for the inputs, as a list: one value, a list of them or a dict by name.

    InputError that says which names a dict lacks or has too many.
    """
    if not isinstance(given, Mapping):
        return list(given) if isinstance(given, (list, tuple)) else [given]
    names = [i.name for i in model.inputs]
    wrong = [f"there is no input {n!r}" for n in given if n not in names]
    wrong += [f"{n!r} is missing" for n in names if n not in given]
    if wrong:
        raise InputError(f"model {model.name!r} takes {', '.join(names)}: {'; '.join(wrong)}")
    return [given[n] for n in names]
