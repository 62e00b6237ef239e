"""`tune`: threads, streams and batch of a model for a number of cores."""

from collections.abc import Callable, Sequence
from typing import Any

from bslite.errors import EngineError, InputError
from bslite.machine import Machine
from bslite.parallelism.advice import Advice
from bslite.parallelism.choose import objective, ranked, said, shortlist
from bslite.parallelism.host import Host, host_described, host_here
from bslite.parallelism.price import Estimate, price
from bslite.parallelism.replay import replay
from bslite.parallelism.result import Row
from bslite.parallelism.rules import Rule, rules
from bslite.parallelism.setting import BATCHES, TARGETS, Setting, few_threads, space
from bslite.parallelism.width import Width, width_of
from bslite.parallelism.work import Work, inputs_of, machine_for, work_of
from bslite.spec import ModelSpec
from bslite.spec.open import OpenModel, behind

MOST_CORES = 1024
SHOWN = 4  # settings beside those of rules


def tune(
    model: Any,
    target: str = "latency",
    *,
    cores: int | None = None,
    batches: Sequence[int] | None = None,
    measure: bool | None = None,
    progress: Callable[[str], None] = lambda what: None,
) -> Advice:
    """How to spread ``model`` over ``cores``: images of a request, requests at a time, threads of each.

    ``model``: a `ModelSpec`, what `bslite.from_onnx` returned or an open ONNX model, or one of them compiled.
    ``target``: "latency", the least time of one request of one image; "throughput", the most images per
    second. ``cores``: by default those that the process may use. ``batches``: sizes to look at for
    throughput, 1, 4 and 16 by default; those that the model does not take are left out.

    Every setting gets a price, worked out of runs on one thread, so that the cores need not be here.
    ``measure``: whether the best few by price are then run; by default where the cores are. Else they are
    simulated. The best of them is the choice. ``progress`` is told what is being done.

    Raises EngineError for a number of cores or a target that does not exist, UnsupportedError for a model
    that runs in several pieces, InputError for a batch that the model does not take.
    """
    from bslite.engines.cpu.threads import available_cores

    if target not in TARGETS:
        raise EngineError(f"target {target!r} is not one of {', '.join(map(repr, TARGETS))}")
    here = available_cores()
    cores = here if cores is None else cores
    if isinstance(cores, bool) or not isinstance(cores, int) or not 1 <= cores <= MOST_CORES:
        raise EngineError(f"cores must be a whole number from 1 to {MOST_CORES}, got {cores!r}")
    measure = cores <= here if measure is None else measure
    if measure and cores > here:
        raise EngineError(f"{cores} cores cannot be measured: this process may use {here}")
    cases = _cases(behind(model), target, batches)
    spec, inputs = cases[min(cases)]
    width = width_of(spec)
    machine = described_here()
    shapes = spec.infer_shapes([x.shape for x in inputs])
    told = rules(spec, shapes, width, cores, machine, has_dots())
    host = host_for(cores, here)
    works = _works(cases, threads_of(target, cores, width, told), machine, progress)
    priced = prices(works, host, target, told)
    named = said(told, target, priced, sorted(cases))
    short = shortlist(target, priced, cores)
    measured: dict[Setting, Estimate] = {}
    simulated: dict[Setting, Estimate] = {}
    if measure:
        from bslite.parallelism.measure import measure as measured_of

        progress(f"measuring {len(short)} settings")
        measured |= measured_of(cases, short)
        choice = ranked(target, measured)[0]
    else:
        progress("simulating")
        for s in dict.fromkeys([*short, *named]):
            simulated[s] = replay(works[s.batch, s.threads], host, s.streams)
        choice = ranked(target, {s: simulated[s] for s in short})[0]
    order = [s for s in ranked(target, priced) if s in measured or s in named or s in short[:SHOWN]]
    order = [choice, *(s for s in order if s != choice)]
    rows = [Row(s, named.get(s, ()), priced[s], simulated.get(s), measured.get(s)) for s in order]
    why = _why(target, choice, measured or simulated, "measured" if measured else "simulated", width)
    return Advice(spec.name, target, cores, width, tuple(told), tuple(rows), choice, why, host)


def threads_of(target: str, cores: int, width: Width, told: Sequence[Rule]) -> list[int]:
    """The numbers of threads to look at: a few, and those of rules."""
    return sorted({*few_threads(target, cores, width.pools), *(rule.threads for rule in told)})


def prices(
    works: dict[tuple[int, int], Work], host: Host, target: str, told: Sequence[Rule]
) -> dict[Setting, Estimate]:
    """The price of every setting whose work, by batch and threads, is known, and of what rules say."""
    batches, threads = sorted({b for b, _ in works}), {t for _, t in works}
    wanted = [s for s in space(target, host.cores, batches) if s.threads in threads]
    if target == "throughput":
        wanted += [Setting(b, rule.streams, rule.threads) for rule in told for b in batches]
    else:
        wanted += [Setting(min(batches), 1, t) for t in threads]
    return {s: price(works[s.batch, s.threads], host, s.streams) for s in dict.fromkeys(wanted)}


def described_here() -> Machine:
    """This machine without its rates, which depend on the number of threads."""
    from bslite.engines.cpu.description import described

    return described(1)


def has_dots() -> bool:
    """Whether this processor has dot products of bytes."""
    from bslite.kernels.cpu.vector.target import has_dots as found

    return bool(found())


def host_for(cores: int, here: int) -> Host:
    """This machine, or where it has too few cores a socket of 48 that `bslite explore` describes."""
    if cores <= here:
        return host_here(cores)
    from bslite.explore.machine_file import find_machine

    described = find_machine("cpu-48-cores")
    assert isinstance(described, Machine)
    return host_described(cores, described, CLOCK)


CLOCK = 2.5e9  # cycles per second of the described socket


def _cases(model: Any, target: str, batches: Sequence[int] | None) -> dict[int, Any]:
    """The model and inputs for each batch; its own batch alone if it takes no other."""
    if not isinstance(model, (ModelSpec, OpenModel)):
        raise InputError(
            f"tune() takes a ModelSpec or an ONNX model first, got {type(model).__name__}; "
            "make one with bslite.from_torch, from_onnx, from_state_dict or load"
        )
    if batches is not None and (not batches or any(isinstance(b, bool) or b < 1 for b in batches)):
        raise InputError(f"batches must be positive whole numbers, got {list(batches)}")
    every = tuple(batches or (BATCHES if target == "throughput" else (1,)))
    wanted = every if target == "throughput" else every[:1]
    found: dict[int, Any] = {}
    for batch in wanted:
        try:
            found[batch] = inputs_of(model, batch)
        except InputError:
            if batches is not None:
                raise
    if not found:
        spec, inputs = inputs_of(model, None)
        found[inputs[0].shape[0] if inputs and inputs[0].ndim else 1] = spec, inputs
    return found


def _works(
    cases: dict[int, Any], threads: Sequence[int], machine: Machine, progress: Callable[[str], None]
) -> dict[tuple[int, int], Work]:
    """One-thread runs of each batch, planned for each number of threads."""
    found = {}
    for batch, (spec, inputs) in cases.items():
        for t in threads:
            progress(f"batch {batch}, planned for {t} thread(s), on one")
            found[batch, t] = work_of(spec, inputs, machine_for(t, machine))
    return found


def _why(target: str, choice: Setting, known: dict[Setting, Estimate], what: str, width: Width) -> str:
    """A sentence about the choice, by what is ``known`` of it and others."""
    cost = objective(target)
    others = [s for s in known if (s.streams, s.threads) != (choice.streams, choice.threads)]
    text = f"{what}, {choice} is best"
    if others:
        second = min(others, key=lambda s: cost(known[s]))
        more = 100 * (cost(known[second]) / cost(known[choice]) - 1)
        text += f"; {second} takes {more:.0f} % more time for an image"
    return f"{text}; the graph is {width.average:.2f} wide"
