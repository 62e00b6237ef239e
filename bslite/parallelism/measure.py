"""Settings measured on this machine: blocks in random order, the first half of each dropped, medians."""

import itertools
import random
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bslite.errors import BsliteError
from bslite.parallelism.price import Estimate
from bslite.parallelism.setting import Setting
from bslite.spec import Array, ModelSpec

SECONDS, ROUNDS = 1.0, 3
LEAST = 8  # requests of a block, of each stream


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
    each setting has ``rounds`` of them. ``done`` is called after each block.

    Raises DifferentAnswers if the bits of an answer depend on the setting.
    """
    from bslite.compiled import compile

    ready: dict[Setting, Callable[[], Any]] = {}
    answers: dict[int, list[Array]] = {}
    kept = []
    for setting in settings:
        spec, inputs = models[setting.batch]
        model = compile(spec, threads=setting.threads, streams=setting.streams)
        kept.append(model)
        made = [np.asarray(y) for y in model(*inputs).tuple()]
        same = answers.setdefault(setting.batch, made)
        if any(a.tobytes() != b.tobytes() for a, b in zip(same, made, strict=True)):
            raise DifferentAnswers(f"model {spec.name!r}: {setting} makes other bits than the first setting")
        ready[setting] = _call(model, inputs)
    blocks: dict[Setting, list[Estimate]] = {setting: [] for setting in ready}
    order = [setting for setting in ready for _ in range(rounds)]
    random.Random(seed).shuffle(order)
    for setting in order:
        blocks[setting].append(_block(ready[setting], setting, seconds))
        done()
    for model in kept:
        model.close()
    return {setting: _medians(found) for setting, found in blocks.items()}


def _call(model: Any, inputs: Sequence[Array]) -> Callable[[], Any]:
    return lambda: model(*inputs)


def _medians(blocks: Sequence[Estimate]) -> Measured:
    rates = tuple(b.rate for b in blocks)
    return Measured(statistics.median(b.seconds for b in blocks), statistics.median(rates), rates)


def _block(call: Callable[[], Any], setting: Setting, seconds: float) -> Estimate:
    """One block of a setting: all streams at once."""
    ends: list[list[float]] = [[] for _ in range(setting.streams)]
    barrier = threading.Barrier(setting.streams)
    failed: list[BaseException] = []

    def stream(mine: list[float]) -> None:
        try:
            barrier.wait()
            mine.append(time.perf_counter())
            until = mine[0] + seconds
            while len(mine) <= LEAST or mine[-1] < until:
                call()
                mine.append(time.perf_counter())
        except BaseException as e:
            failed.append(e)
            barrier.abort()

    if setting.streams == 1:
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
        late = mine[len(mine) // 2 :]
        rate += setting.batch * (len(late) - 1) / (late[-1] - late[0])
        each += [b - a for a, b in itertools.pairwise(late)]
    return Estimate(statistics.median(each), rate)
