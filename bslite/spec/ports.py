"""`Port`: what a caller is told about an input or an output of a model."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from bslite.errors import EngineError, InputError
from bslite.spec.machine import machine_memory


@dataclass(frozen=True)
class Port:
    """An input or output: its name, its sizes, its dtype.

    ``shape`` mixes fixed sizes, names of free ones and None for a size that is known at run time only; it is
    None where even the rank is known at run time only.
    """

    name: str
    shape: tuple[int | str | None, ...] | None
    dtype: str

    def __str__(self) -> str:
        sizes = "..." if self.shape is None else ", ".join("?" if d is None else str(d) for d in self.shape)
        return f"{self.name}: {self.dtype}[{sizes}]"

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
        """Values of this shape: see `drawn`. InputError if it is no array of numbers or texts."""
        if self.dtype in ("sequence_type", "optional_type", "map_type", "unknown"):
            kind = self.dtype.removesuffix("_type")
            raise InputError(f"input {self.name!r} is a {kind}, for which nothing can be drawn: give it")
        return drawn(self.dtype, rng, shape)


def drawn(dtype: str, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Normal noise; of integers and bools 0 and 1, which are within the range of any table; of texts "0" and
    "1". EngineError if the machine has no room for them.
    """
    size = math.prod(shape) * (4 if dtype == "float32" else 8)
    if size > machine_memory():
        raise EngineError(
            f"random values of shape {list(shape)} take {size / 2**30:,.1f} GB; "
            f"the machine has {machine_memory() / 2**30:,.1f} GB"
        )
    if dtype == "float32":
        return rng.standard_normal(shape, np.float32)
    if dtype.startswith(("float", "bfloat")):
        return rng.standard_normal(shape).astype(dtype)
    ones = rng.integers(0, 2, shape)
    return ones.astype(str).astype(object) if dtype == "string" else ones.astype(dtype)
