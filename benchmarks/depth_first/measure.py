"""One network, batch and number of threads: the same bits both ways first, then times in turns and memory."""

import functools
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.depth_first.memory import memory_of_a_run
from benchmarks.memory import Unmeasurable, between_layers
from benchmarks.peers.nets import Net
from benchmarks.rivals import Times
from benchmarks.tables import median_ratio
from bslite.api import run
from bslite.cli.timing import interleaved, medians, seconds_of
from bslite.spec import load

MODES = {"depth-first": False, "layerwise": True}  # the argument ``layerwise`` of `bslite.run`
LONG = 1.0  # seconds; of a call this long one a turn will do, the rounds are there to repeat it


@dataclass
class Result(Times):
    """What was found for one network, batch and number of threads; seconds and bytes, by mode."""

    net: str
    batch: int
    threads: int
    error: float | None = None  # relative L2 from float64, of the images checked
    planned: dict[str, int] = field(default_factory=dict)  # arena, and scratch of all threads
    measured: dict[str, int] = field(default_factory=dict)  # growth of a process during its first run

    @property
    def ratio(self) -> float | None:
        """How many times as long layerwise takes: above 1, depth-first is faster."""
        if not self.rounds:
            return None
        return median_ratio(self.rounds["layerwise"], self.rounds["depth-first"])


def compare(net: Net, model: Path, batch: int, threads: int, rounds: int, memory: bool = True) -> Result:
    """Measure one case: the first ``batch`` images of the net, whose bslite model is in the file ``model``.

    The model is read anew, so that the plans of the case before, and their memory, are gone.
    """
    result = Result(net.name, batch, threads)
    spec, x = load(model), net.x[:batch]
    calls = {
        mode: functools.partial(run, spec, x, layerwise=layerwise, threads=threads)
        for mode, layerwise in MODES.items()
    }
    seconds = []
    answers = []
    for mode, call in calls.items():
        answers.append(call())
        seconds.append(seconds_of(call))
        result.planned[mode] = between_layers(spec, x, threads, MODES[mode])
    result.error = net.error(answers[0], batch)
    if not np.array_equal(answers[0].view(np.int32), answers[1].view(np.int32)):
        result.failures["answers"] = "wrong answer: depth-first and layerwise differ in their bits"
    elif not result.error <= net.bound:
        result.failures["answers"] = f"wrong answer: error {result.error:.1e}, bound {net.bound:.1e}"
    else:
        answers.clear()
        result.rounds = interleaved(calls, rounds, per_turn=1 if max(seconds) > LONG else 3)
        result.seconds = medians(result.rounds)
    calls.clear()
    del spec
    for mode, layerwise in MODES.items() if memory else ():
        try:
            result.measured[mode] = memory_of_a_run(model, x.shape, threads, layerwise)
        except Unmeasurable as e:
            result.failures[f"memory, {mode}"] = str(e)
    return result
