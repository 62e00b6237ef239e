"""The choice among settings: all are priced; the best few measured, or simulated where cores are missing."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from bslite.parallelism.price import Estimate
from bslite.parallelism.rules import Rule
from bslite.parallelism.setting import Setting

SHORT = 4  # settings measured at most


def objective(target: str) -> Callable[[Estimate], float]:
    """What is to be small: seconds of a request, or of an image of all streams."""
    if target == "latency":
        return lambda estimate: estimate.seconds
    return lambda estimate: 1.0 / estimate.rate


def ranked(target: str, found: Mapping[Setting, Estimate]) -> list[Setting]:
    """The settings, the best first; of equal ones the one of fewer threads and images."""
    cost = objective(target)
    return sorted(found, key=lambda s: (cost(found[s]), s.used, s))


def of_rule(rule: Rule, target: str, found: Mapping[Setting, Estimate], batches: Iterable[int]) -> Setting:
    """The setting that a rule means. It names no batch: it gets the best for its streams and threads.

    For latency there is one request at a time, so one team of the threads it says.
    """
    if target == "latency":
        return Setting(min(batches), 1, rule.threads)
    mine = {s: e for s, e in found.items() if (s.streams, s.threads) == (rule.streams, rule.threads)}
    return ranked(target, mine)[0]


def shortlist(target: str, found: Mapping[Setting, Estimate], cores: int) -> list[Setting]:
    """The settings worth measuring: the best of each of the best ways to divide the cores, and the next
    batch sizes of the best of these.
    """
    order = [s for s in ranked(target, found) if s.used <= cores]
    ways: dict[tuple[int, int], Setting] = {}
    for setting in order:
        ways.setdefault((setting.streams, setting.threads), setting)
    chosen = list(ways.values())[: SHORT - 1]
    best = chosen[0]
    more = [s for s in order if (s.streams, s.threads) == (best.streams, best.threads) and s != best]
    return [*chosen, *more[: SHORT - len(chosen)]]


def said(
    rules: Sequence[Rule], target: str, found: Mapping[Setting, Estimate], batches: Sequence[int]
) -> dict[Setting, tuple[str, ...]]:
    """The names of the rules by the setting that each means."""
    named: dict[Setting, tuple[str, ...]] = {}
    for rule in rules:
        setting = of_rule(rule, target, found, batches)
        named[setting] = (*named.get(setting, ()), rule.name)
    return named
