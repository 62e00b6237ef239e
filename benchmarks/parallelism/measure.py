"""One network on so many cores: every setting, measured or simulated, and what the tuner and rules choose."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bslite.parallelism.api import described_here, has_dots, host_for, prices, threads_of
from bslite.parallelism.choose import of_rule, ranked, shortlist
from bslite.parallelism.host import Host
from bslite.parallelism.measure import blocks, medians, ready
from bslite.parallelism.price import Estimate, price
from bslite.parallelism.replay import replay
from bslite.parallelism.rules import Rule, rules
from bslite.parallelism.setting import TARGETS, Setting, space, teams
from bslite.parallelism.width import Width, width_of
from bslite.parallelism.work import Alone, Work, inputs_of, machine_for, traced
from bslite.spec import ModelSpec

Works = dict[tuple[int, int], Work]  # by batch and threads
VISITS = 5
RULES = ("width", "intel", "tensorflow", "openvino")


@dataclass
class Result:
    """One network, target and number of cores. ``settings`` has seconds of a request and images per second
    of every setting tried, as (batch, streams, threads); ``chosen`` those of the tuner and of the rules.
    """

    net: str
    target: str
    cores: int
    kind: str  # measured or simulated
    width: float
    settings: dict[str, tuple[float, float]]
    chosen: dict[str, str]
    best: str
    failures: dict[str, str] = field(default_factory=dict)

    def cost(self, name: str) -> float:
        """Seconds of a request or of an image, of a setting."""
        seconds, rate = self.settings[name]
        return seconds if self.target == "latency" else 1.0 / rate

    def over_best(self, who: str) -> float:
        """The cost of what the tuner or a rule chose over that of the best setting."""
        return self.cost(self.chosen[who]) / self.cost(self.best)


@dataclass
class Checked:
    """A setting measured here and simulated from one-thread times."""

    net: str
    batch: int
    streams: int
    threads: int
    measured: tuple[float, float]  # seconds of a request, images per second
    simulated: tuple[float, float]
    priced: tuple[float, float]
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def error(self) -> float:
        """Of simulated images per second, relative."""
        return self.simulated[1] / self.measured[1] - 1.0


@dataclass(frozen=True)
class Prepared:
    """A network, its cases by batch, and its width."""

    name: str
    cases: Mapping[int, tuple[ModelSpec, Any]]
    width: Width

    def rules(self, cores: int) -> list[Rule]:
        """What each rule says."""
        spec, inputs = self.cases[min(self.cases)]
        shapes = spec.infer_shapes([x.shape for x in inputs])
        return rules(spec, shapes, self.width, cores, described_here(), has_dots())


def prepare(name: str, spec: ModelSpec, batches: Sequence[int]) -> Prepared:
    """Inputs for each batch."""
    return Prepared(name, {b: inputs_of(spec, b) for b in batches}, width_of(spec))


def works(net: Prepared, threads: Sequence[int], note: Callable[[str], None] = lambda text: None) -> Works:
    """One-thread runs of every batch, planned for each number of threads; how long they last, from rounds
    in which all plans take turns.
    """
    machine = described_here()
    alone = {(b, t): Alone(*case, machine_for(t, machine)) for b, case in net.cases.items() for t in threads}
    note(f"{net.name}: {len(alone)} plans")
    found = {(b, t): traced(one, b) for (b, t), one in alone.items()}
    note(f"{net.name}: one-thread times of their items")
    each = blocks({key: (one, 1) for key, one in alone.items()}, seconds=0.0, rounds=VISITS, least=1)
    note(f"{net.name}: and of the whole plans, {VISITS} times in turns")
    return {key: work.lasting(statistics.median(e.seconds for e in each[key])) for key, work in found.items()}


def every_setting(net: Prepared, target: str, cores: int) -> list[Setting]:
    """All that have a core for each thread, and what rules say at any batch."""
    batches = sorted(net.cases)
    told = [
        Setting(b, 1, r.threads) if target == "latency" else Setting(b, r.streams, r.threads)
        for r in net.rules(cores)
        for b in (batches[:1] if target == "latency" else batches)
    ]
    return list(dict.fromkeys([*space(target, cores, batches), *told]))


def measured_here(
    net: Prepared, cores: int, seconds: float, rounds: int, host: Host
) -> tuple[list[Result], list[Checked]]:
    """Both targets by exhaustive search on this machine; and how far the simulator is off.

    In the same rounds each plan runs on one thread: the simulator's times last as long as these.
    """
    settings = list(dict.fromkeys(s for target in TARGETS for s in every_setting(net, target, cores)))
    machine, threads = described_here(), threads_needed(net, [cores])
    alone = {(b, t): Alone(*case, machine_for(t, machine)) for b, case in net.cases.items() for t in threads}
    calls: dict[Any, tuple[Callable[[], Any], int]] = {key: (one, 1) for key, one in alone.items()}
    calls |= {s: (call, s.streams) for s, call in ready(net.cases, settings).items()}
    each = blocks(calls, seconds=seconds, rounds=rounds)
    exact = {s: medians(each[s], s.batch) for s in settings}
    found = {
        (b, t): traced(one, b).lasting(statistics.median(e.seconds for e in each[b, t]))
        for (b, t), one in alone.items()
    }
    results = []
    for target in TARGETS:
        mine = {s: exact[s] for s in every_setting(net, target, cores)}
        few = shortlist(target, _tuned(net, found, host, target, cores), cores)
        again = blocks({s: calls[s] for s in few}, seed=1)
        choice = ranked(target, {s: medians(again[s], s.batch) for s in few})[0]
        results.append(_result(net, target, cores, "measured", mine, choice, few[0]))
    checked = [
        _checked(net.name, s, exact[s], found[s.batch, s.threads], host) for s in settings if s.used <= cores
    ]
    return results, checked


def simulated(net: Prepared, found: Works, cores: int) -> list[Result]:
    """Both targets by exhaustive search in the simulator."""
    host, results = host_for(cores, 0), []
    for target in TARGETS:
        exact = {
            s: replay(found[s.batch, s.threads], host, s.streams) for s in every_setting(net, target, cores)
        }
        few = shortlist(target, _tuned(net, found, host, target, cores), cores)
        choice = ranked(target, {s: exact[s] for s in few})[0]
        results.append(_result(net, target, cores, "simulated", exact, choice, few[0]))
    return results


def threads_needed(net: Prepared, cores: Sequence[int]) -> list[int]:
    """The numbers of threads that plans are needed for."""
    return sorted({t for n in cores for t in (*teams(n), *(r.threads for r in net.rules(n)))})


def _tuned(net: Prepared, found: Works, host: Host, target: str, cores: int) -> dict[Setting, Estimate]:
    """The prices that the tuner would see: of the few numbers of threads that it looks at."""
    told = net.rules(cores)
    few = threads_of(target, cores, net.width, told)
    return prices({key: work for key, work in found.items() if key[1] in few}, host, target, told)


def _result(
    net: Prepared, target: str, cores: int, kind: str, exact: Mapping[Setting, Estimate], choice: Setting,
    priced: Setting,
) -> Result:  # fmt: skip
    chosen = {"bslite": choice, "price alone": priced}
    for rule in net.rules(cores):
        chosen[rule.name] = of_rule(rule, target, exact, net.cases)
    fit = {s: e for s, e in exact.items() if s.used <= cores}
    return Result(
        net.name, target, cores, kind, net.width.average,
        {name(s): (e.seconds, e.rate) for s, e in exact.items()},
        {who: name(s) for who, s in chosen.items()},
        name(ranked(target, fit)[0]),
    )  # fmt: skip


def name(setting: Setting) -> str:
    """``batch x streams x threads``."""
    return f"{setting.batch}x{setting.streams}x{setting.threads}"


def _checked(net: str, setting: Setting, exact: Estimate, work: Work, host: Host) -> Checked:
    again, estimate = replay(work, host, setting.streams), price(work, host, setting.streams)
    return Checked(
        net, setting.batch, setting.streams, setting.threads, (exact.seconds, exact.rate),
        (again.seconds, again.rate), (estimate.seconds, estimate.rate),
    )  # fmt: skip
