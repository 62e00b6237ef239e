"""One model file by onnxruntime and by bslite: does it load, is it right, how long does it take."""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import bslite
from benchmarks import rivals
from benchmarks.blocks import in_blocks
from benchmarks.corpus.definition import SAME, careful, in_float32, rounds_at_run_time, verdict
from benchmarks.corpus.inputs import Unfeedable, candidates, redrawn
from benchmarks.corpus.sources import File
from bslite.cli.timing import medians
from bslite.errors import BsliteError
from bslite.spec import Array
from bslite.verification import check, relative_error

THEIRS, OURS = "onnxruntime", "bslite"
#: How far bslite's may be from onnxruntime's where no float64 answer judges.
ALONE = 1e-4
#: Errors of an output of fewer numbers are a matter of chance: one that is out of bound is judged once more,
#: with the outputs of other inputs, so many numbers in all, of at most so many inputs.
FEW, MOST_INPUTS = 64, 24
TINY_ANSWER = 1e-6  # numbers below are as good as zero when two answers are told apart


@dataclass
class Result(rivals.Times):
    """A file at one size. ``failures``: of onnxruntime, what it does not run; of bslite, what is wrong."""

    file: str
    inputs: str
    loads: bool = False  # and runs, as it is
    right: bool = False
    exact: bool = False  # judged by a float64 answer
    judge: str = ""  # "float64", "definition" (see `definition`), or "onnxruntime", by distance
    error: float | None = None  # bslite's, largest over the outputs; see `judge`
    peer: float | None = None  # onnxruntime's
    first: dict[str, float] | None = None  # seconds to load (at the first size) and run once

    @property
    def ratio(self) -> float | None:
        """onnxruntime's time over bslite's."""
        return self.ratio_to(THEIRS)


@dataclass(frozen=True)
class How:
    """``rounds`` 0 takes no times."""

    threads: int
    rounds: int
    given: Mapping[str, Array] | None = None  # inputs by name instead of those that are tried
    reference: bool = True  # compute the float64 answer


class Theirs:
    """onnxruntime's session of a file."""

    def __init__(self, path: Path, threads: int) -> None:
        self.session = rivals.onnxruntime_session(str(path), threads, quiet=True)
        self.outputs = [o.name for o in self.session.get_outputs()]

    def run(self, feed: Mapping[str, Array]) -> list[Any]:
        made: list[Any] = self.session.run(None, dict(feed))
        return made

    def feed(self, again: bool) -> tuple[dict[str, Array], list[Any]] | None:
        """The first inputs that it takes, and what it makes of them; None if no other size is to be tried."""
        last: Exception | None = None
        for feed in candidates(self.session.get_inputs(), again):
            try:
                return feed, self.run(feed)
            except Exception as e:  # of another size, or of a library whose errors have no common kind
                last = e
        if again or last is None:
            return None
        raise Unfeedable(f"no size that was tried runs ({line(last)})")


def examine(file: File, how: How) -> Iterator[Result]:
    """A result for the first size, and one for a second batch and size if any is open."""
    start = time.perf_counter()
    try:
        theirs = Theirs(file.path, how.threads)
        loaded = time.perf_counter() - start
    except Exception as e:  # see `Theirs.feed`
        yield Result(file.name, "", failures={THEIRS: f"does not load: {line(e)}"})
        return
    model = None
    for again in (False, True):
        if again and how.given is not None:
            return
        try:
            found = (how.given, theirs.run(how.given)) if how.given is not None else theirs.feed(again)
        except Exception as e:  # see `Theirs.feed`
            yield Result(file.name, "", failures={THEIRS: f"does not run: {line(e)}"})
            return
        if found is None:
            return
        feed, want = found
        result = Result(file.name, shapes(feed))
        start = time.perf_counter()
        theirs.run(feed)
        result.first = {THEIRS: time.perf_counter() - start + (0 if again else loaded)}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                start = time.perf_counter()
                model = model or bslite.compile(file.path, threads=how.threads)
                got = list(model(dict(feed)).tuple())
                result.first[OURS] = time.perf_counter() - start
        except Exception as e:  # whatever it is, the next file is examined
            result.failures[OURS] = f"does not run: {line(e)}"
            yield result
            continue
        result.loads = True
        truth = exact(file.path, feed) if how.reference else None
        judge(result, theirs.outputs, got, want, truth)
        few = min((y.size for y in got), default=FEW)
        if how.given is None and result.exact and not result.right and 0 < few < FEW:
            count = min(MOST_INPUTS, -(-FEW // few))
            judge_over(result, model, theirs, file.path, feed, again, count)
        if truth is not None and not result.exact and rounds_at_run_time(file.path):
            judge_by_definition(result, theirs.outputs, got, truth, file.path, feed)
        if result.right and how.rounds:
            time_both(result, model, theirs, feed, how.rounds)
        yield result


def exact(path: Path, feed: Mapping[str, Array]) -> Sequence[Array] | None:
    """The outputs in float64, by the reference; None if that cannot run the model."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return list(bslite.compile(path, device="reference64")(dict(feed)).tuple())
    except BsliteError:
        return None


def judge(
    result: Result,
    names: Sequence[str],
    got: Sequence[Array],
    want: Sequence[Any],
    truth: Sequence[Array] | None,
) -> None:
    """Hold bslite's outputs against onnxruntime's.

    By the rule of the whole project where there is a float64 answer that onnxruntime is near (`SAME`):
    bslite's error against it is at most four times onnxruntime's. Else by their distance: beyond, the two
    compute different things, or the model makes a decision that rounding turns, and the float64 answer judges
    nothing.
    """
    errors, peers = [0.0], [0.0]
    near = truth is not None and all(
        isinstance(w, np.ndarray) and (relative_error(w, t) <= SAME or _close(w, t))
        for w, t in zip(want, truth, strict=True)
    )
    result.exact, wrong = near, []
    for k, (name, g, w) in enumerate(zip(names, got, want, strict=True)):
        if not isinstance(w, np.ndarray):
            wrong.append(f"output {name!r} of onnxruntime is a {type(w).__name__}, which is not compared")
        elif g.shape != w.shape or g.dtype != w.dtype:
            wrong.append(f"output {name!r} is {g.dtype} {list(g.shape)}, expected {w.dtype} {list(w.shape)}")
        elif truth is not None and near:
            found = check(name, "output", g, truth[k], w)
            errors.append(found.error)
            peers.append(found.reference_error)
            if not found.passed:
                wrong.append(f"output {name!r}: error {found.error:.1e}, bound {found.bound:.1e}")
        else:
            found = check(name, "output", g, w, w)
            errors.append(found.error)
            if not found.specials or not found.error <= ALONE:
                wrong.append(f"output {name!r} is {found.error:.1e} from onnxruntime's, bound {ALONE:.0e}")
    result.error, result.peer = max(errors), max(peers) if near else None
    result.judge = "float64" if near else THEIRS
    _conclude(result, wrong)


def judge_over(
    result: Result,
    model: Callable[..., Any],
    theirs: Theirs,
    path: Path,
    feed: Mapping[str, Array],
    again: bool,
    count: int,
) -> None:
    """Judge the outputs for ``count`` inputs of the sizes of ``feed`` as one answer."""
    made: list[tuple[Sequence[Array], ...]] = []
    for seed in range(count):
        drawn = redrawn(theirs.session.get_inputs(), again, feed, seed)
        truth = exact(path, drawn)
        assert truth is not None
        made.append((list(model(dict(drawn)).tuple()), theirs.run(drawn), truth))
    if len({tuple(y.shape for y in answer) for each in made for answer in each}) == 1:
        got, want, truth = (
            list(map(np.stack, zip(*answers, strict=True))) for answers in zip(*made, strict=True)
        )
        judge(result, theirs.outputs, got, want, truth)


def judge_by_definition(
    result: Result,
    names: Sequence[str],
    got: Sequence[Array],
    truth: Sequence[Array],
    path: Path,
    feed: Mapping[str, Array],
) -> None:
    """Judge a model that rounds at run time by `definition.verdict`, where that has one."""
    if any(g.shape != t.shape for g, t in zip(got, truth, strict=True)):
        return
    found = verdict(names, got, truth, careful(path, feed), in_float32(path, feed))
    if found is not None:
        wrong, result.error, result.peer = found
        result.exact, result.judge = True, "definition"
        _conclude(result, wrong)


def _conclude(result: Result, wrong: Sequence[str]) -> None:
    result.right = not wrong
    result.failures.pop(OURS, None)
    if wrong:
        result.failures[OURS] = f"wrong: {'; '.join(wrong)}"


def _close(want: Array, truth: Array) -> bool:
    """Whether two answers differ by next to nothing: sigmoids of onnxruntime end at 1e-8, far from e^-40."""
    return want.shape == truth.shape and np.allclose(want, truth, rtol=SAME, atol=TINY_ANSWER, equal_nan=True)


def time_both(
    result: Result, model: Callable[..., Any], theirs: Theirs, feed: Mapping[str, Array], rounds: int
) -> None:
    """Both engines' times, in blocks."""
    result.rounds = in_blocks({THEIRS: lambda: theirs.run(feed), OURS: lambda: model(feed)}, rounds)
    result.seconds = medians(result.rounds)


def shapes(feed: Mapping[str, Array]) -> str:
    """``x 1×3×320×320``."""
    return ", ".join(f"{name} {'×'.join(map(str, x.shape)) or 'scalar'}" for name, x in feed.items())


def line(error: BaseException) -> str:
    """An error as one line of a report."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
