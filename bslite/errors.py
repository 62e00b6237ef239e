"""Every error a user can meet, one family: ``except bslite.BsliteError`` catches them all.

Each is Python's own error of its kind as well, so that a program that knows nothing of bslite catches it.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class BsliteError(Exception):
    """Base of all errors raised on purpose by bslite."""


class SpecError(BsliteError, ValueError):
    """The model description is wrong: a name, an arity, an attribute, a parameter or a shape."""


class InputError(BsliteError, ValueError, TypeError):
    """The array handed to a model is not what the model takes (shape, rank, dtype)."""


class IntegerRangeError(InputError):
    """A number in a run is beyond the 32 bits of an engine's integers, or those of its dtype, or is a length
    of a sequence that the engine has not. ``layer``: the one whose result it is; empty where it came in.
    ``number``: which, where it is known.
    """

    def __init__(self, message: str, layer: str = "", number: int | None = None) -> None:
        super().__init__(message)
        self.layer, self.number = layer, number


class WeightsError(BsliteError, ValueError):
    """A state_dict does not fit the architecture: missing, extra or misshapen parameters."""


class FileError(BsliteError, OSError):
    """A model file is missing, corrupt, truncated, or not a bslite model."""


class UnsupportedError(BsliteError, NotImplementedError):
    """A frontend met layers that bslite has no op for. Lists all of them at once."""


class EngineError(BsliteError, RuntimeError):
    """An engine cannot run on this machine or was asked for something it does not do."""


@contextmanager
def writing(path: object) -> Iterator[None]:
    """Turn an OSError inside the block into a FileError that names ``path``."""
    try:
        yield
    except OSError as e:
        raise FileError(f"{path}: cannot write ({e.strerror})") from e
