"""How exactly products are computed: the least accuracy that a user accepts, in the words of torch and XLA"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from typing import Any

from bslite.errors import EngineError


class Precision(Enum):
    """The least accuracy of products of float32 numbers. The engine takes the fastest arithmetic that has it.

    ``FLOAT32``: errors no larger than those of float32 arithmetic, whichever instructions compute it.
    ``IEEE``: float32 multiply-adds and nothing else. ``BFLOAT16_3X``: three products of bfloat16 parts of the
    numbers, about 16 bits of each. ``BFLOAT16``: each rounded to 8 bits. Sums are float32 always. Where a
    machine has no instructions for bfloat16, all of them are float32 multiply-adds. On a GPU long
    sums of all but ``IEEE`` may be three products of TF32 parts, and cuDNN's.
    """

    FLOAT32 = "float32"
    IEEE = "ieee"
    BFLOAT16_3X = "bfloat16_3x"
    BFLOAT16 = "bfloat16"

    @property
    def products(self) -> int:
        """Products of parts of bfloat16 that may take the place of a float32 product; 0: none may."""
        return {"float32": 6, "ieee": 0, "bfloat16_3x": 3, "bfloat16": 1}[self.value]


_current: ContextVar[Precision] = ContextVar("bslite_precision", default=Precision.FLOAT32)
current = _current.get


def precision_of(given: Any) -> Precision:
    """The precision of that name. EngineError for another word."""
    try:
        return Precision(given)
    except ValueError:
        words = ", ".join(repr(p.value) for p in Precision)
        raise EngineError(f"precision {given!r} is not one of {words}") from None


@contextmanager
def precision(given: Any) -> Iterator[None]:
    """What runs, and what is made ready, inside ``with bslite.precision("ieee"):`` has that precision, unless
    it is told another. Each thread has its own. Raises EngineError for an unknown word.
    """
    token = _current.set(precision_of(given))
    try:
        yield
    finally:
        _current.reset(token)
