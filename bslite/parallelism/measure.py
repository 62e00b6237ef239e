"""Settings measured on this machine: rounds of blocks in random order, half of each dropped, medians."""

import functools
import itertools
import random
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from bslite.errors import BsliteError
from bslite.parallelism.disturbance import others
from bslite.parallelism.price import Estimate
from bslite.parallelism.setting import Setting
from bslite.spec import Array, ModelSpec

K = TypeVar("K")
SECONDS, ROUNDS = 0.25, 8  # of a block, and blocks of a setting
DISTURBED, TICK = 0.05, 0.02  # of a core; seconds that the system counts by
LEAST = 4  # requests of a block, of each stream


@dataclass(frozen=True)
class Measured(Estimate):
    """Medians over blocks; ``rates`` has the images per second of each block."""

    rates: tuple[float, ...]


class DifferentAnswers(BsliteError):
    """Two settings made different answers of the same inputs, which must not happen."""


def measure(
    models: Mapping[int, tuple[ModelSpec, Sequence[Array]]],
    settings: Sequence[Setting],
    *,
    seconds: float = SECONDS,
    rounds: int = ROUNDS,
    seed: int = 0,
    done: Callable[[], None] = lambda: None,
) -> dict[Setting, Measured]:
    """Seconds of a request and images per second of each setting, on this machine.

    ``models``: for each batch the model and its inputs. Streams are threads of Python, each of which sends
    its next request when the last one is answered. A block takes ``seconds``, or longer for few requests;
    each setting has one in each of ``rounds``. ``done`` is called after each block.

    Raises DifferentAnswers if the bits of an answer depend on the setting.
    """
    calls = ready(models, settings)
    found = blocks(
        {s: (call, s.streams) for s, call in calls.items()},
        seconds=seconds,
        rounds=rounds,
        seed=seed,
        done=done,
    )
    return {s: medians(each, s.batch) for s, each in found.items()}


def ready(
    models: Mapping[int, tuple[ModelSpec, Sequence[Array]]], settings: Sequence[Setting]
) -> dict[Setting, Callable[[], Any]]:
    """A call for each setting, called once. Raises DifferentAnswers."""
    from bslite.compiled import compile

    calls: dict[Setting, Callable[[], Any]] = {}
    answers: dict[int, list[Array]] = {}
    for setting in settings:
        spec, inputs = models[setting.batch]
        call = functools.partial(compile(spec, threads=setting.threads, streams=setting.streams), *inputs)
        made = [np.asarray(y) for y in call().tuple()]
        same = answers.setdefault(setting.batch, made)
        if any(a.tobytes() != b.tobytes() for a, b in zip(same, made, strict=True)):
            raise DifferentAnswers(f"model {spec.name!r}: {setting} makes other bits than the first setting")
        calls[setting] = call
    return calls


def blocks(
    calls: Mapping[K, tuple[Callable[[], Any], int]], *, seconds: float = SECONDS, rounds: int = ROUNDS,
    seed: int = 0, done: Callable[[], None] = lambda: None, least: int | None = None,
) -> dict[K, list[Estimate]]:  # fmt: skip
    """Seconds of a call and calls per second, for each block. ``calls``: what to call, in how many threads;
    ``least``: calls of a block, of each thread.

    Each round has a block of each, in another random order: a machine that others use is now faster and now
    slower, and so all have their part of both. A block during which others took cores is measured again, as
    often as there are ``rounds`` for each at most.
    """
    found: dict[K, list[Estimate]] = {key: [] for key in calls}
    again = dict.fromkeys(calls, rounds)
    shuffle = random.Random(seed).shuffle
    for _ in range(rounds):
        order = list(calls)
        shuffle(order)
        for key in order:
            block, disturbed = _watched(*calls[key], seconds, least)
            while disturbed and again[key]:
                again[key] -= 1
                block, disturbed = _watched(*calls[key], seconds, least)
            found[key].append(block)
            done()
    return found


def _watched(
    call: Callable[[], Any], streams: int, seconds: float, least: int | None
) -> tuple[Estimate, bool]:
    """A block, and whether others took cores meanwhile."""
    before, start = others(), time.perf_counter()
    block = _block(call, streams, seconds, least)
    return block, others() - before > DISTURBED * (time.perf_counter() - start) + TICK


def medians(blocks: Sequence[Estimate], batch: int) -> Measured:
    """The medians of a setting's blocks; each call is for ``batch`` images."""
    rates = tuple(batch * b.rate for b in blocks)
    return Measured(statistics.median(b.seconds for b in blocks), statistics.median(rates), rates)


def _block(call: Callable[[], Any], streams: int, seconds: float, least: int | None = None) -> Estimate:
    """One block: all streams at once."""
    ends: list[list[float]] = [[] for _ in range(streams)]
    barrier = threading.Barrier(streams)
    failed: list[BaseException] = []

    def stream(mine: list[float]) -> None:
        try:
            barrier.wait()
            mine.append(time.perf_counter())
            until = mine[0] + seconds
            while len(mine) <= (least or LEAST) or mine[-1] < until:
                call()
                mine.append(time.perf_counter())
        except BaseException as e:
            failed.append(e)
            barrier.abort()

    if streams == 1:
        stream(ends[0])
    else:
        threads = [threading.Thread(target=stream, args=(mine,)) for mine in ends]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failed:
        raise failed[0]
    rate, each = 0.0, []
    for mine in ends:
        late = mine[(len(mine) - 1) // 2 :]
        rate += (len(late) - 1) / (late[-1] - late[0])
        each += [b - a for a, b in itertools.pairwise(late)]
    return Estimate(statistics.median(each), rate)
