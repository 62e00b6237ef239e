"""Several requests in one run: their rows one after the other along axis 0, and the results cut apart."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bslite.errors import SpecError
from bslite.spec import Array


def together(
    run: Callable[..., Mapping[str, Array]], requests: Sequence[Sequence[Array]]
) -> list[dict[str, Array]]:
    """The results of each request by name, from one call of ``run`` with one array per input.

    Raises what ``run`` does, and SpecError if it gives another number of rows than it was given.
    """
    if len(requests) == 1:
        return [dict(run(*requests[0]))]
    made = run(*(np.concatenate(parts) for parts in zip(*requests, strict=True)))
    counts = [len(request[0]) for request in requests]
    ends = np.cumsum(counts)
    for name, y in made.items():
        if y.shape[:1] != (ends[-1],):
            raise SpecError(f"for {ends[-1]} rows, output {name!r} has shape {list(y.shape)}")
    return [
        {name: y[end - count : end] for name, y in made.items()}
        for count, end in zip(counts, ends, strict=True)
    ]


def identical(a: Array, b: Array) -> bool:
    """Whether two answers have the same shape and bytes; texts compare as such."""
    if a.dtype == object:
        return a.shape == b.shape and bool((a == b).all())
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def mixed(
    made: Sequence[Mapping[str, Array]], alone: Sequence[Mapping[str, Array]],
    same: Callable[[Array, Array], bool] = identical,
) -> str | None:  # fmt: skip
    """The first output of requests made together that is not the ``same`` as alone; None if there is none."""
    for found, wanted in zip(made, alone, strict=True):
        for name, y in wanted.items():
            if not same(found[name], y):
                return name
    return None
