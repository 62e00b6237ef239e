"""One point at one batch size: rivals that agree take turns, and with them the reading of as many bytes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.deepbench.engines import ENGINES, Traced
from benchmarks.deepbench.layer import Case, Layer
from benchmarks.peers.measure import Note, Result, in_turns, right_ones
from bslite.cli.timing import medians, seconds_of

TURN, LONGEST = 0.04, 0.2  # seconds of one turn's calls: the fastest rival's, at most the slowest's
MOST = 25  # calls of a turn
READ = 4e8  # bytes that one call of the reading reads at least
DIRECTIONS = {"forwards": False, "alternating": True}  # whether every second pass goes backwards


@dataclass
class Found(Result):
    """What was found; seconds and bytes per second. ``net`` is the point's name."""

    steps: int = 0
    lengths: tuple[int, ...] = ()  # of the entries of DeepBench's list that this stands for
    weight_bytes: int = 0  # of the recurrent weights
    projection_flops: float = 0.0  # of the products with the inputs of all steps
    stream: dict[str, float] = field(default_factory=dict)  # bytes/s, by `DIRECTIONS`
    recurrent: float | None = None  # of bslite's time, from the first time step's start to the last's end

    @property
    def ratio(self) -> float | None:
        """How many times as long as bslite the best rival takes: the median of each round's ratio."""
        return self.ratio_to(self.best_peer)

    def floor(self, fma: float, direction: str) -> float | None:
        """The least seconds of a run: weights at the streaming rate at every step, and products with inputs.

        The products take their flops at ``fma`` flop/s, or the time to read their weights once if longer.
        """
        rate = self.stream.get(direction)
        if not rate:
            return None
        once = self.weight_bytes / rate
        return self.steps * once + max(self.projection_flops / fma, once)

    def share(self, fma: float, direction: str) -> float | None:
        """The floor's part of bslite's time."""
        floor, ours = self.floor(fma, direction), self.seconds.get("bslite")
        return floor / ours if floor and ours else None

    def recurrent_share(self, direction: str) -> float | None:
        """As `share`, of the time steps alone: their rate over the streaming rate."""
        rate, read = self.stream.get(direction), self.rate
        return read / rate if rate and read else None

    @property
    def rate(self) -> float | None:
        """Bytes per second of recurrent weights that the time steps read; a single step reads all weights."""
        read = 2 * self.weight_bytes if self.steps == 1 else self.steps * self.weight_bytes
        return read / self.recurrent if self.recurrent else None

    def fma_share(self, fma: float) -> float | None:
        """bslite's flop/s, of both products, over ``fma``."""
        ours = self.seconds.get("bslite")
        return 2 * self.projection_flops / ours / fma if ours else None


def compare(
    layer: Layer, batch: int, threads: int, engines: Sequence[str], rounds: int, folder: Path, note: Note
) -> Found:
    """Measure one point. What goes wrong with one rival is a line in ``failures`` and stops no other."""
    from bslite.engines.cpu.job import start_threads
    from bslite.engines.cpu.stream import read_turn

    point = layer.point
    result = Found(
        point.name, batch, threads, steps=point.steps, lengths=point.lengths,
        weight_bytes=point.weight_bytes, projection_flops=point.steps * batch * point.weight_bytes / 2,
    )  # fmt: skip
    case = Case(layer, batch, folder)
    peers = right_ones(case, {e: ENGINES[e] for e in engines}, result, note)
    per_turn = calls_of_a_turn(peers)
    calls: dict[str, Callable[[], object]] = dict(peers)
    start_threads(threads)
    read = {}
    for direction, alternate in DIRECTIONS.items():
        passes = max(4, round(READ / point.streamed))
        calls[direction], read[direction] = read_turn(threads, point.streamed, passes, alternate)
    if "bslite" in peers:
        calls["traced"] = traced = Traced(layer.spec, case.x, threads)
    note(f"{point.name} batch {batch}: timing {', '.join(peers)}")
    result.rounds = in_turns(calls, result.failures, rounds, per_turn=per_turn, turned=True)
    apart = {name: result.rounds.pop(name) for name in (*DIRECTIONS, "traced") if name in result.rounds}
    result.seconds = medians(result.rounds)
    seconds = medians(apart)
    result.stream = {name: read[name] / seconds[name] for name in DIRECTIONS if name in seconds}
    if "traced" in seconds:
        result.recurrent = traced.seconds(rounds, per_turn)
    return result


def calls_of_a_turn(calls: Mapping[str, Callable[[], object]]) -> int:
    """How many: one of what takes long, many of what is over at once."""
    each = [seconds_of(call) for call in calls.values()]
    return max(1, min(MOST, int(TURN / min(each)), int(LONGEST / max(each)))) if each else 1
