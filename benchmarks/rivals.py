"""What all comparisons with rivals share: their times by name, and failures as lines of the report."""

import contextlib
import multiprocessing
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from benchmarks.tables import median_ratio

Found = TypeVar("Found")


def in_own_process(threads: int, function: Callable[..., Found], *arguments: Any) -> Found:
    """What ``function`` returns in a process of its own, in which torch has so many threads.

    What it leaves in memory goes, and if it dies, only it does (BrokenProcessPool).
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _set_threads, (threads,)) as pool:
        return pool.submit(function, *arguments).result()


def _set_threads(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)


def onnxruntime_session(
    model: str | bytes, threads: int, quiet: bool = False, entries: Mapping[str, str] | None = None
) -> Any:
    """onnxruntime's session on the CPU, all optimisations on as they are by default. ``quiet``: it logs fatal
    errors alone; ``entries``: of its configuration.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    if quiet:
        options.log_severity_level = 4
    for key, value in (entries or {}).items():
        options.add_session_config_entry(key, value)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


class Unavailable(Exception):
    """This rival cannot run here; the message says why."""


@dataclass(kw_only=True)
class Times:
    """Seconds by rival; those of bslite have names that begin with "bslite"."""

    rounds: dict[str, list[float]] = field(default_factory=dict)  # one median per round
    seconds: dict[str, float] = field(default_factory=dict)  # median over the rounds
    failures: dict[str, str] = field(default_factory=dict)  # why a rival has no time

    @property
    def best_peer(self) -> str | None:
        """The fastest rival that is not ours."""
        others = {name: s for name, s in self.seconds.items() if not name.startswith("bslite")}
        return min(others, key=others.__getitem__) if others else None

    def ratio_to(self, other: str | None, ours: str = "bslite") -> float | None:
        """How many times as long as ``ours`` another takes: the median over rounds of the ratio in each."""
        if other is None or not {ours, other} <= self.rounds.keys():
            return None
        return median_ratio(self.rounds[other], self.rounds[ours])

    @contextlib.contextmanager
    def noting(self, engine: str) -> Iterator[None]:
        """Turn whatever a rival raises into a line of the report: rivals are other people's programs."""
        try:
            yield
        except Unavailable as e:
            self.failures[engine] = str(e)
        except Exception as e:
            first = (str(e).strip().splitlines() or [""])[0]
            self.failures[engine] = f"{type(e).__name__}: {first[:200]}"
