"""Inputs for a model of which nothing is known but what its file declares: sizes are tried until it runs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from bslite.spec import Array

#: onnxruntime's names of the types that inputs are made of.
DTYPES = {
    f"tensor({name})": np.dtype(dtype)
    for name, dtype in {
        "float": "float32", "double": "float64", "float16": "float16", "bool": "bool",
        **{n: n for n in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")},
    }.items()
}  # fmt: skip

BATCH = "batch"
#: Sizes that open axes are tried with, in this order: of the first inputs, and of those of another size.
SIZES = (
    (512, 320, 64, 48, 160, 224, 640, 16000, 44, 17, 1),
    (576, 1024, 512, 352, 96, 80, 192, 24000, 52, 23, 2),
)
#: Numbers that inputs of these names want.
NUMBERS = {"sr": (16000, 8000), "sample_rate": (16000, 8000), "fmin": (50,), "fmax": (2000,)}
MOST_ID = 20  # integers are below: indices of tables whose length is not known


class Declared(Protocol):
    """An input as onnxruntime declares it."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> str: ...

    @property
    def shape(self) -> Sequence[Any]: ...


class Unfeedable(Exception):
    """No inputs can be made; the message says why."""


@dataclass(frozen=True)
class Open:
    """The open axes of a model's inputs: (input, axis) -> the size's name, `BATCH` for that of the batch."""

    names: Mapping[tuple[str, int], str]

    @property
    def has_batch(self) -> bool:
        return BATCH in self.names.values()

    @property
    def others(self) -> list[str]:
        """Names of the sizes that are not the batch's."""
        return [n for n in dict.fromkeys(self.names.values()) if n != BATCH]


def open_axes(inputs: Sequence[Declared]) -> Open:
    """An open axis 0 of an input that has other axes is its batch; the rest go by their names."""
    names: dict[tuple[str, int], str] = {}
    for i in inputs:
        for axis, size in enumerate(i.shape):
            if not isinstance(size, int) or size < 1:
                called = str(size or f"{i.name}.{axis}")
                is_batch = (axis == 0 and len(i.shape) > 1) or called.lower().startswith(("batch", "unk"))
                names[i.name, axis] = BATCH if is_batch else called
    return Open(names)


def candidates(inputs: Sequence[Declared], again: bool = False, seed: int = 0) -> Iterator[dict[str, Array]]:
    """Arrays by name to try, likeliest first. ``again``: of a second batch and a second size.

    Raises Unfeedable for inputs that are not arrays of numbers.
    """
    for i in inputs:
        if i.type not in DTYPES:
            raise Unfeedable(f"its input {i.name!r} is {i.type}")
    axes = open_axes(inputs)
    if again and not axes.names:
        return
    batches = (2, 1) if again and axes.has_batch else (1,)
    sizes = SIZES[again] if axes.others else (1,)
    for batch in batches:
        for size in sizes:
            for turn in range(max((len(NUMBERS.get(i.name, ())) for i in inputs), default=0) or 1):
                rng = np.random.default_rng(seed)
                yield {i.name: _array(i, axes, batch, size, turn, rng) for i in inputs}


def redrawn(
    inputs: Sequence[Declared], again: bool, feed: Mapping[str, Array], seed: int
) -> dict[str, Array]:
    """Other numbers in arrays like those of ``feed``, one of the `candidates`."""
    like = {name: x.shape for name, x in feed.items()}
    return next(c for c in candidates(inputs, again, seed) if {n: x.shape for n, x in c.items()} == like)


def _array(i: Declared, axes: Open, batch: int, size: int, turn: int, rng: np.random.Generator) -> Array:
    free = {key: batch if name == BATCH else size for key, name in axes.names.items()}
    shape = tuple(free.get((i.name, axis), n) for axis, n in enumerate(i.shape))
    dtype = DTYPES[i.type]
    if i.name in NUMBERS:
        numbers = NUMBERS[i.name]
        return np.full(shape, numbers[turn % len(numbers)], dtype)
    if i.name.endswith(("lens", "lengths", "_len")):
        return np.full(shape, max(size - 7, 1), dtype)
    if i.name.endswith("mask"):
        return np.ones(shape, dtype)
    if dtype.kind == "f":
        return (rng.standard_normal(shape) * 0.3).astype(dtype)
    return rng.integers(0, 2 if dtype.kind == "b" else MOST_ID, shape).astype(dtype)
