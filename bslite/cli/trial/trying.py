"""A model tried out: loaded, verified, run in other ways, timed beside its peers."""

import tempfile
import time
from pathlib import Path
from typing import Any

from bslite.api import settled
from bslite.cli.progress import activity, steps
from bslite.cli.rivals import ENGINE
from bslite.cli.timing import interleaved, seconds_of
from bslite.cli.trial import bits, peers
from bslite.cli.trial.result import Trial
from bslite.compiled import CompiledModel
from bslite.engines.cpu.threads import default_threads
from bslite.spec import ModelSpec
from bslite.spec.open import behind
from bslite.verification import Verification, verify

SECONDS = 4.0  # that the timing is meant to take
ROUNDS = 3, 9  # at least and at most
TURN = 0.03  # seconds of a turn that is not to be shorter
CALLS = 3, 200  # of a turn, at least and at most,
SLOW = 0.25  # but for a peer whose call takes so many seconds: then one


def tried(
    title: str, path: Path | None, model: CompiledModel, inputs: list[Any], loading: float, with_peers: bool
) -> Trial:
    """What there is to know of a model, from the input ``inputs``; ``path``: its ONNX file, if it has one."""
    threads = model.threads or default_threads()
    with activity(f"Preparing {model.name}"):
        start = time.perf_counter()
        outputs = list(model(*inputs).tuple())
        first = time.perf_counter() - start
    memory = dict(model.memory)
    whole = settled(behind(model), inputs)
    parts = [whole[0]] if whole else list(getattr(behind(model), "specs", list)())
    parameters = {id(a): a.nbytes for spec in parts for a in spec.params.values()}
    names = peers.installed() if with_peers else []
    rivals = []
    with tempfile.TemporaryDirectory(prefix="bslite-try-") as folder, steps("Peers", len(names)) as advance:
        made = peers.prepared(names, path, whole, behind(model), inputs, outputs, threads, Path(folder))
        for peer in made:
            rivals.append(peer)
            advance(peer.name)
        checked = _verified(whole, model, inputs, rivals, threads)
        counts = sorted({1, 2, threads, threads + 1})
        with steps("Same bits", len(counts) + 1) as advance:
            on_threads: dict[int, bool] = {}
            for count in counts:
                on_threads |= bits.on_threads(model, inputs, outputs, [count])
                advance(f"{count} threads")
            batch = bits.in_batch(model, inputs)
            advance("in a batch")
        rounds = _timed(model, inputs, rivals)
    return Trial(
        title, list(map(str, model.inputs)), list(map(str, model.outputs)),
        [list(getattr(x, "shape", ())) for x in inputs], threads, loading, first, model.pieces, memory,
        sum(parameters.values()), checked, on_threads, batch, rivals, rounds,
        [n for n in peers.KNOWN if with_peers and n not in names],
    )  # fmt: skip


def _verified(
    whole: Any, model: CompiledModel, inputs: list[Any], rivals: list[peers.Peer], threads: int
) -> Verification:
    """Against float64; torch's own error is the bound where torch computes the model as one."""
    judge = next((p.judge for p in rivals if p.call is not None and p.judge is not None), None)
    spec, given = whole or (behind(model), inputs)
    count = len(spec.nodes) if isinstance(spec, ModelSpec) else 0
    with steps("Verifying", count or 1) as advance:
        return verify(spec, given, module=judge, threads=threads, on_layer=advance)


def _timed(model: CompiledModel, inputs: list[Any], rivals: list[peers.Peer]) -> dict[str, list[float]]:
    """Seconds per call of each round, in turns."""
    calls: dict[str, Any] = {ENGINE: lambda: model(*inputs)}
    calls |= {p.name: p.call for p in rivals if p.call is not None}
    once = {name: min(seconds_of(call) for _ in range(2)) for name, call in calls.items()}
    longest = max(once.values())
    per_turn = 1 if longest > SLOW else _within(CALLS, round(TURN / longest))
    rounds = _within(ROUNDS, int(SECONDS / ((per_turn + 1) * sum(once.values()))))
    with steps("Timing", rounds * len(calls)) as advance:
        return interleaved(calls, rounds, per_turn, on_turn=advance, turned=True)


def _within(limits: tuple[int, int], number: int) -> int:
    return min(max(number, limits[0]), limits[1])
