"""Every error a user can meet, one family: ``except bslite.BsliteError`` catches them all."""

from collections.abc import Iterator
from contextlib import contextmanager


class BsliteError(Exception):
    """Base of all errors raised on purpose by bslite."""


class SpecError(BsliteError):
    """The model description is wrong: a name, an arity, an attribute, a parameter or a shape."""


class InputError(BsliteError):
    """The array handed to a model is not what the model takes (shape, rank, dtype)."""


class WeightsError(BsliteError):
    """A state_dict does not fit the architecture: missing, extra or misshapen parameters."""


class FileError(BsliteError):
    """A model file is missing, corrupt, truncated, or not a bslite model."""


class UnsupportedError(BsliteError):
    """A frontend met layers that bslite has no op for. Lists all of them at once."""


class EngineError(BsliteError):
    """An engine cannot run on this machine or was asked for something it does not do."""


@contextmanager
def writing(path: object) -> Iterator[None]:
    """Turn an OSError inside the block into a FileError that names ``path``."""
    try:
        yield
    except OSError as e:
        raise FileError(f"{path}: cannot write ({e.strerror})") from e
