"""Warming a model: kernels, plans, whether its rows can be computed together, and what a batch costs."""

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any

import numpy as np

from bslite.compiled.together import identical, mixed
from bslite.errors import BsliteError
from bslite.serve.model import Served
from bslite.serve.price import Price
from bslite.serve.settings import Settings
from bslite.spec import Array, ModelSpec
from bslite.spec.open import OpenModel, behind

EXAMPLES = 4  # different rows that batches are made of
ROUNDS, ENOUGH = 5, 0.3  # runs of a size, and the seconds after which there are no more of them


def warm(
    model: Served, settings: Settings, pool: Executor, same: Callable[[Array, Array], bool] = identical
) -> None:
    """Run ``model`` on random inputs on all streams, and note what it learns there: ready, price, alone.

    Batches are measured in sizes that double, until two sizes in a row bring nothing. Every answer out of a
    batch is compared with the answer to its row alone, by ``same``; requests to a model that fails this are
    computed one by one.
    """
    start = time.perf_counter()
    try:
        rows = _examples(model)
    except BsliteError as e:
        model.alone = f"no inputs were found to try it with: {e}"
    else:
        model.alone = ""
        seconds = {1: _measured(model, rows[0], settings.streams, pool)}
        model.alone = _reason(model, settings) or _together(model, rows, seconds, settings, pool, same)
        model.price = Price(seconds)
    model.warmed = time.perf_counter() - start
    model.ready = True


def _examples(model: Served) -> list[list[Any]]:
    """Different inputs of the least batch that the model takes."""
    source = behind(model.compiled)
    if isinstance(source, ModelSpec):
        shapes = [i.example for i in source.inputs]
    elif isinstance(source, OpenModel):
        shapes = [x.shape for x in source.example({}, 1)]
    else:
        raise AssertionError(f"{type(source).__name__} is never served")
    if _open(model):
        shapes = [(1, *shape[1:]) for shape in shapes]
    draws = map(np.random.default_rng, range(EXAMPLES))
    return [[p.draw(rng, s) for p, s in zip(model.inputs, shapes, strict=True)] for rng in draws]


def _open(model: Served) -> bool:
    """Whether the first sizes of all inputs, and of all outputs, may be one open size."""
    for ports in (model.inputs, model.outputs):
        first = [p.shape[0] if p.shape else 0 for p in ports]  # no shape, or no axis: as good as fixed
        if any(isinstance(d, int) for d in first) or len({d for d in first if d is not None}) > 1:
            return False
    return bool(model.inputs)


def _reason(model: Served, settings: Settings) -> str:
    """Why the rows of several requests are not to be computed together, so far as it is known beforehand."""
    if settings.max_batch == 1:
        return "--max-batch is 1"
    if not _open(model):
        return "its batch is fixed"
    if other := [line for line in model.compiled.pieces if not line.startswith("engine")]:
        return f"not all of it runs on the engine: {other[0]}"
    return ""


def _together(
    model: Served,
    rows: Sequence[Sequence[Array]],
    seconds: dict[int, float],
    settings: Settings,
    pool: Executor,
    same: Callable[[Array, Array], bool],
) -> str:
    """Measure batches into ``seconds``; why they cannot be, if they cannot."""
    solo = list(pool.map(model.run, rows))
    idle = 0
    for size in _sizes(settings.max_batch):
        batch = list(itertools.islice(itertools.cycle(rows), size))
        try:
            made = pool.submit(model.run_together, batch).result()
        except Exception as e:
            return f"{size} rows at once fail: {e}"
        if (name := mixed(made, list(itertools.islice(itertools.cycle(solo), size)), same)) is not None:
            return f"output {name!r} of a row depends on the other rows"
        best = min(t / n for n, t in seconds.items())
        joined = [np.concatenate(parts) for parts in zip(*batch, strict=True)]
        seconds[size] = _measured(model, joined, settings.streams, pool)
        idle = 0 if seconds[size] / size < best else idle + 1
        if idle == 2:
            break
    return ""


def _sizes(most: int) -> list[int]:
    """2, 4, 8 ... and the most."""
    return [*itertools.takewhile(lambda n: n < most, (2**k for k in itertools.count(1))), most]


def _measured(model: Served, arrays: Sequence[Any], streams: int, pool: Executor) -> float:
    """Seconds of a run with all streams busy with the same, there and back: the median over some."""
    found: list[float] = []
    deadline = time.perf_counter() + ENOUGH
    while len(found) <= ROUNDS and (len(found) < 2 or time.perf_counter() < deadline):
        begin = time.perf_counter()
        list(pool.map(model.run, [arrays] * streams))
        found.append(time.perf_counter() - begin)
    return statistics.median(found[1:])  # in the first, plans are made, and threads that are not there yet
