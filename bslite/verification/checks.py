"""One value against the oracle in float64, and the bound on its error.

The bound is what float32 costs any engine: the reference in float32, and torch where it is installed, are
measured against the same float64 run, and the engine may be at most `FACTOR` times as far from it. Errors add
up through a network, so a value is compared with a float32 run of the same depth, not with a constant.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bslite.ops import Shape
from bslite.spec import Array

#: How many times a float32 peer's error the engine's may be,
FACTOR = 4.0
#: plus half a unit in the last place: what two exact answers, each rounded once, may differ by.
TINY = 2.0**-24


@dataclass(frozen=True)
class Check:
    """One value. Errors are relative L2 against float64.

    ``specials``: NaN and infinities stand where they do in the reference.
    """

    name: str
    op: str
    shape: Shape
    error: float
    reference_error: float  # of the reference computed in float32
    torch_error: float | None  # of torch in float32, where there is one
    specials: bool
    exactly: bool = False  # texts and the like, which have no error: ``specials`` says whether they are right

    @property
    def bound(self) -> float:
        """The largest error that passes."""
        peer = self.reference_error if self.torch_error is None else self.torch_error
        return FACTOR * peer + TINY

    @property
    def passed(self) -> bool:
        """Whether the error is within the bound and NaN stands where it belongs; a NaN error is not."""
        return self.specials and self.error <= self.bound


def check(name: str, op: str, got: Array, exact: Array, single: Array, torch: Array | None = None) -> Check:
    """Compare one value with the float64 and the float32 reference."""
    specials = got.shape == exact.shape and _same_specials(got, single)
    return Check(
        name,
        op,
        tuple(got.shape),
        relative_error(got, exact),
        relative_error(single, exact),
        None if torch is None else relative_error(torch, exact),
        specials,
    )


def check_any(name: str, got: Any, exact: Any, single: Any, theirs: Array | None) -> Iterator[Check]:
    """An output of any kind: a check of each array and number in its sequences and maps. Texts are right
    where they are those of the reference; sequences and maps have to have its lengths and keys.
    """
    if isinstance(got, (list, tuple, dict)) and type(got) is type(exact) and len(got) == len(exact):
        keys = list(got) if isinstance(got, dict) else range(len(got))
        if len(single) == len(got) and (not isinstance(got, dict) or set(got) == set(exact) == set(single)):
            for key in keys:
                yield from check_any(f"{name}[{key!r}]", got[key], exact[key], single[key], None)
            return
    if isinstance(got, (np.ndarray, np.number, float)) and np.asarray(got).dtype.kind in "biuf":
        yield check(name, "output", np.asarray(got), np.asarray(exact), np.asarray(single), theirs)
        return
    shape = getattr(got, "shape", (len(got) if isinstance(got, (list, tuple, dict)) else 1,))
    yield Check(name, "output", shape, 0.0, 0.0, None, same_bits([got], [single]), exactly=True)


def relative_error(got: Array, exact: Array) -> float:
    """``|got - exact| / |exact|`` in L2 over the elements finite in both; absolute where ``exact`` is zero.

    Infinite where the shapes differ: nothing is broadcast.
    """
    if got.shape != exact.shape:
        return float("inf")
    finite = np.isfinite(got) & np.isfinite(exact)
    want = exact[finite].astype(np.float64)
    difference = float(np.linalg.norm(got[finite].astype(np.float64) - want))
    size = float(np.linalg.norm(want))
    return difference / size if size else difference


def same_bits(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Whether arrays, sequences and maps of them have the same bits, texts the same letters."""
    if len(first) != len(second):
        return False
    for a, b in zip(first, second, strict=True):
        if isinstance(a, np.ndarray) and a.dtype.kind != "O":
            same = a.shape == b.shape and a.tobytes() == b.tobytes()
        elif isinstance(a, np.ndarray):
            same = a.shape == b.shape and a.tolist() == b.tolist()
        elif isinstance(a, dict):
            same = list(a) == list(b) and same_bits(list(a.values()), list(b.values()))
        elif isinstance(a, list):
            same = same_bits(a, b)
        else:
            same = a == b or (a != a and b != b)
        if not same:
            return False
    return True


def _same_specials(got: Array, want: Array) -> bool:
    """NaN and both infinities stand in the same places."""
    return all(np.array_equal(find(got), find(want)) for find in (np.isnan, np.isposinf, np.isneginf))
