"""Steps of training: bslite and forms of torch in turns, forward, loss, backward and a fused SGD.

``python -m benchmarks.training`` takes torchvision's networks and two recurrent layers with seeded weights.
Before anything is timed, all gradients of a step of bslite have to be as near to float64 as those of torch
eager, up to a factor.
"""

import random
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks import output, rivals, roofline
from benchmarks import training_steps as steps
from benchmarks.blocks import later_half
from benchmarks.memory import Unmeasurable
from benchmarks.tables import geometric_mean, megabytes, ms, ratio, share, table
from benchmarks.training_memory import memory_of
from benchmarks.training_steps import EAGER, LAST, OURS, PEERS, Trained, example, made

SECONDS = 0.3  # that a block lasts at least: threads of the one before spin at its beginning


@dataclass(kw_only=True)
class Result(rivals.Times):
    """Times of a network's steps; of each engine also those of forward pass, backward pass, optimizer."""

    name: str
    batch: int
    flops: float = 0.0  # that a step takes at least
    parts: dict[str, steps.Parts] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)  # of the gradients, against float64, relative
    checked: int = 0  # the batch they were computed at
    first: dict[str, float] = field(default_factory=dict)  # seconds of the first step
    memory: dict[str, dict[str, int]] = field(default_factory=dict)
    in_torch: Sequence[str] = ()  # why calls of bslite ran in torch

    @property
    def eager(self) -> str:
        """torch eager in the form that is held to be its fastest."""
        return LAST if self.name in steps.NETWORKS else EAGER

    def of_floor(self, rate: float) -> float | None:
        """The share of bslite's time that the arithmetic takes at ``rate`` flop/s."""
        ours = self.seconds.get(OURS)
        return self.flops / rate / ours if ours else None


def compared(
    name: str, batch: int, side: int, threads: int, rounds: int, peers: Sequence[str], memory: bool
) -> Result:
    """A network's steps, in turns."""
    from bslite.dropin.runner import runner_of

    result = Result(name=name, batch=batch)
    with result.noting(OURS):
        result.errors, result.checked = steps.errors(name, batch, side, threads)
        if why := steps.wrong(result.errors):
            raise rivals.Unavailable(why)
    result.flops = steps.arithmetic(name, batch, side)
    module, given = made(name), example(name, batch, side)
    running: dict[str, Trained] = {}
    for engine in steps.engines(name, tuple(peers)):
        with result.noting(engine):
            if engine in result.failures:
                continue
            own = steps.trained(module, *given, engine, threads)
            result.first[engine] = sum(own.step())
            running[engine] = own
    _time(result, running, rounds)
    if OURS in running:
        result.in_torch = tuple(runner_of(running[OURS].module).in_torch)
    running.clear()
    for engine in result.seconds if memory else ():
        try:
            result.memory[engine] = memory_of(name, engine, batch, side, threads)
        except Unmeasurable as e:
            result.failures[f"memory of {engine}"] = str(e)
    return result


def apart(name: str, batch: int, side: int, threads: int, *how: Any) -> Result:
    """`compared` in a process of its own."""
    try:
        return rivals.in_own_process(threads, compared, name, batch, side, threads, *how)
    except Exception as e:  # whatever it is, the other networks go on
        return Result(name=name, batch=batch, failures={OURS: f"{type(e).__name__}: {e}"})


def _time(result: Result, running: dict[str, Trained], rounds: int) -> None:
    order = random.Random(0)
    taken: dict[str, list[steps.Parts]] = {engine: [] for engine in running}
    for _ in range(rounds):
        for engine in order.sample(list(running), len(running)):
            taken[engine].append(_medians(later_half(running[engine].step, SECONDS)))
    for engine, parts in taken.items():
        result.rounds[engine] = [sum(each) for each in parts]
        result.seconds[engine] = statistics.median(result.rounds[engine])
        result.parts[engine] = _medians(parts)


def _medians(times: Sequence[steps.Parts]) -> steps.Parts:
    forward, backward, optimizer = (statistics.median(part) for part in zip(*times, strict=True))
    return forward, backward, optimizer


def as_dict(results: Sequence[Result], rate: float, header: dict[str, Any]) -> dict[str, Any]:
    """Everything, ready for JSON."""
    derived = [
        {"best_peer": r.best_peer, "to_eager": r.ratio_to(r.eager), "to_best": r.ratio_to(r.best_peer),
         "of_floor": r.of_floor(rate)} for r in results
    ]  # fmt: skip
    return {
        **header,
        "fma": rate,
        "results": [asdict(r) | more for r, more in zip(results, derived, strict=True)],
    }


def markdown(results: Sequence[Result], rate: float, header: dict[str, Any]) -> str:
    """A table of times for each batch, then passes, errors and memory."""
    batches = dict.fromkeys(r.batch for r in results)
    said = (
        "A step is forward, loss, backward and a fused SGD. `to eager`: the time of torch eager with "
        "channels last (of a recurrent layer: eager) over bslite's; `to best`: that of the fastest peer. `of "
        "the floor`: the share of bslite's time that the arithmetic takes, three times the forward pass "
        f"without the gradient of the input, at {rate / 1e9:.0f} GFLOP/s, the rate of bslite's microkernel "
        "out of L1."
    )
    failures = output.failed(results, lambda r: f"{r.name}, batch {r.batch}")
    left = [f"- {r.name}: {why}" for r in results for why in r.in_torch]
    return output.document(
        *(_times([r for r in results if r.batch == batch], batch, rate, header) for batch in batches),
        said,
        _checks(results),
        _memory(results),
        "In torch:\n\n" + "\n".join(left) if left else "",
        failures,
        output.where(header),
    )


def _times(results: Sequence[Result], batch: int, rate: float, header: dict[str, Any]) -> str:
    columns = [engine for engine in (OURS, *PEERS) if engine == OURS or engine in header["options"]["peers"]]
    head = ["network", *columns, "forward", "backward", "best peer", "to eager", "to best", "of the floor"]
    rows = [
        [r.name, *(ms(r.seconds.get(engine)) for engine in columns),
         *([ms(part) for part in r.parts[OURS][:2]] if OURS in r.parts else ["-", "-"]),
         r.best_peer or "-", ratio(r.ratio_to(r.eager)), ratio(r.ratio_to(r.best_peer)),
         share(r.of_floor(rate))]
        for r in results
    ]  # fmt: skip
    means = [geometric_mean([r.ratio_to(to(r)) for r in results]) for to in (_eager, _best)]
    rows.append(["geometric mean", *[""] * (len(columns) + 3), *map(ratio, means)])
    threads = header["options"]["threads"]
    return f"**Batch {batch}, {threads} thread(s); ms, medians of interleaved rounds**\n\n{table(head, rows)}"


def _eager(result: Result) -> str:
    return result.eager


def _best(result: Result) -> str | None:
    return result.best_peer


def _checks(results: Sequence[Result]) -> str:
    columns = (OURS, EAGER, LAST)
    rows = [
        [r.name, str(r.checked), *(f"{r.errors[e]:.1e}" if e in r.errors else "-" for e in columns)]
        for r in results
    ]
    head = ["network", "checked at batch", *columns]
    return f"**Distance of all gradients of a step from float64, relative**\n\n{table(head, rows)}"


def _memory(results: Sequence[Result]) -> str:
    measured = [r for r in results if r.memory]
    if not measured:
        return ""
    columns = list(dict.fromkeys(engine for r in measured for engine in r.memory))
    saving = [engine for engine in columns if any("saved" in r.memory.get(engine, {}) for r in measured)]
    head = ["network", "batch", *columns, *(f"saved by {engine}" for engine in saving)]
    rows = [
        [r.name, str(r.batch), *(megabytes(r.memory.get(e, {}).get("peak")) for e in columns),
         *(megabytes(r.memory.get(e, {}).get("saved")) for e in saving)]
        for r in measured
    ]  # fmt: skip
    said = "what steps add at most to a process's resident memory; saved between forward and backward pass"
    return f"**Memory, MB: {said}**\n\n{table(head, rows)}"


def main(arguments: list[str] | None = None, compare: Callable[..., Result] | None = None) -> int:
    """Measure all networks and print tables. The exit code is 1 if bslite fails or is wrong."""
    parser = output.parser("training", __doc__)
    parser.add_argument("--networks", nargs="+", choices=steps.NAMES, default=steps.NAMES, metavar="NAME")
    parser.add_argument("--batch", type=int, nargs="+", default=[16])
    parser.add_argument("--side", type=int, default=224, help="rows and columns of an image")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    output.choice(parser, "--peers", PEERS)
    parser.add_argument("--memory", action="store_true", help="measure memory too, in processes of their own")
    output.add_options(parser)
    options = parser.parse_args(arguments)
    import torch

    torch.set_num_threads(options.threads)
    run = output.Run("training", options, as_dict, markdown, roofline.fma_rate(options.threads))
    how = options.side, options.threads, options.rounds, options.peers, options.memory
    for batch in options.batch:
        for name in options.networks:
            found = (compare or apart)(name, batch, *how)
            best = f"{ratio(found.ratio_to(found.best_peer))} times as fast as {found.best_peer}"
            run.limits = max(run.limits, roofline.fma_rate(options.threads))  # a disturbance only lowers it
            run.add(found, f"{name}, batch {batch}: {found.failures.get(OURS, best)}")
    run.finish()
    return int(any(OURS in r.failures for r in run.results))


if __name__ == "__main__":
    sys.exit(main())
