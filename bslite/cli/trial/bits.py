"""Whether a model's answer has the same bits on other numbers of threads, and for a row in a batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bslite.api import run
from bslite.compiled import CompiledModel, compile
from bslite.compiled.rows import check_rows
from bslite.compiled.together import identical, mixed, together
from bslite.errors import BsliteError, SpecError
from bslite.spec import Array
from bslite.spec.open import behind
from bslite.verification.checks import relative_error, same_bits

ROWS = 3  # in the batch that is tried
#: Float64 answers further apart than this are answers to different questions.
APART = 1e-9

SAME, MIXED, CLOSE, DIFFERENT, FIXED, UNTRIED = "same", "mixed", "close", "different", "fixed", "untried"


@dataclass(frozen=True)
class Batch:
    """What rows in one batch showed: one of the words above, and the same in a sentence.

    `MIXED`: the model itself makes an answer of all rows, as the reference does, too. `CLOSE`: the last bits
    of a model that runs partly in NumPy, for which nothing is promised.
    """

    verdict: str
    told: str

    @property
    def passed(self) -> bool:
        """Whether nothing that is promised was broken."""
        return self.verdict != DIFFERENT


def on_threads(
    model: CompiledModel, inputs: Sequence[Any], first: Sequence[Any], counts: Sequence[int]
) -> dict[int, bool]:
    """Number of threads -> whether the answer on so many has the bits of ``first``."""
    return {n: same_bits(first, _listed(run(behind(model), list(inputs), threads=n))) for n in counts}


def in_batch(model: CompiledModel, inputs: Sequence[Any]) -> Batch:
    """Run rows alone and together, where the model leaves its batch open."""
    try:
        single = check_rows(model)
    except SpecError:
        return Batch(FIXED, "no axis of rows is open in every input, so no batch was tried")
    if single:
        return Batch(FIXED, "the model fixes its batch to one row, so no other was tried")
    if not all(isinstance(x, np.ndarray) and x.ndim and len(x) == len(inputs[0]) for x in inputs):
        return Batch(UNTRIED, "the inputs have different numbers of rows, so no batch was tried")
    rows = _rows(inputs)
    try:
        other = _apart(model, rows)
    except (BsliteError, AttributeError) as e:  # AttributeError: of results that are no arrays
        return Batch(UNTRIED, f"a batch of {len(rows)} could not be tried: {e}")
    if other is None:
        return Batch(SAME, f"a row has the same bits alone and in a batch of {len(rows)}")
    return _judged(model, rows, other)


def _judged(model: CompiledModel, rows: Sequence[Sequence[Array]], other: str) -> Batch:
    """What it means that output ``other`` of a row has other bits in a batch."""
    with compile(behind(model), device="reference64") as reference:
        if _apart(reference, rows, _alike) is not None:
            return Batch(
                MIXED,
                f"rows see each other: {other!r} of a row depends on the rows beside it, by the model's own "
                "definition",
            )
    outside = [line for line in model.pieces if not line.startswith("engine")]
    if outside:
        return Batch(
            CLOSE, f"{other!r} of a row in a batch has other last bits: {len(outside)} pieces run in NumPy"
        )
    return Batch(DIFFERENT, f"{other!r} of a row has OTHER BITS in a batch of {len(rows)}")


def _apart(model: CompiledModel, rows: Sequence[Sequence[Array]], same: Any = identical) -> str | None:
    """The first output of rows together that is not the same as alone."""
    alone: list[Mapping[str, Array]] = [model(*row) for row in rows]
    return mixed(together(model, rows), alone, same)


def _alike(a: Array, b: Array) -> bool:
    if a.dtype.kind != "f" or b.dtype.kind != "f":
        return identical(a, b)
    return relative_error(a, b) <= APART


def _rows(inputs: Sequence[Array]) -> list[list[Array]]:
    """The rows of the inputs; of inputs of one row, that row and others with its values in another order."""
    if len(inputs[0]) > 1:
        return [[x[i : i + 1] for x in inputs] for i in range(min(ROWS, len(inputs[0])))]
    rng = np.random.default_rng(0)
    return [list(inputs), *([_other(x, n, rng) for x in inputs] for n in range(1, ROWS))]


def _other(x: Array, number: int, rng: np.random.Generator) -> Array:
    """Integers and texts stay within what they were drawn from; noise shrinks, so that no two rows agree."""
    turned = rng.permutation(x.reshape(-1)).reshape(x.shape)
    return turned * turned.dtype.type(1 - number / 8) if x.dtype.kind == "f" else turned


def _listed(made: Any) -> list[Any]:
    return list(made) if isinstance(made, (list, tuple)) else [made]
