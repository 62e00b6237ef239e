"""The simulator on items whose times are chosen: what must come out can be worked out by hand."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bslite.parallelism import replay as module
from bslite.parallelism.host import Host
from bslite.parallelism.price import price
from bslite.parallelism.replay import Replayed, replay
from bslite.parallelism.work import Work

#: Cores that share nothing.
FREE = Host(1000, 1 << 40, 1e15, 1e18)


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uncompiled, so that tests start at once; and teams that are there at once."""
    monkeypatch.setattr(module, "_compiled", lambda: module._replay)
    monkeypatch.setattr(module, "JOIN", 0.0)


def work(
    *steps: tuple[list[float], int], threads: int = 1, call: float = 0.0, moved: float = 0.0,
    weights: float = 0.0, batch: int = 1, held: int = 0, parameters: int = 0,
) -> Work:  # fmt: skip
    """Steps as (seconds of items, steps before that must be done); each item moves so many bytes."""
    counts = [len(seconds) for seconds, _ in steps]
    return Work(
        batch, threads, np.array([after for _, after in steps]), np.concatenate([[0], np.cumsum(counts)]),
        np.array([s for seconds, _ in steps for s in seconds]), 0.0, call, np.full(len(steps), moved),
        np.full(len(steps), weights), held, parameters,
    )  # fmt: skip


def near(found: Replayed, seconds: float, rate: float | None = None) -> None:
    assert found.seconds == pytest.approx(seconds)
    assert found.rate == pytest.approx(1 / seconds if rate is None else rate)


def test_one_thread_takes_the_sum() -> None:
    near(replay(work(([1, 2], 0), ([3], 1), call=0.5), FREE, 1), 6.5)


def test_items_of_a_step_run_side_by_side() -> None:
    near(replay(work(([1] * 8, 0), threads=4), FREE, 1), 2.0)
    near(replay(work(([1] * 9, 0), threads=4), FREE, 1), 3.0)  # the last item alone


def test_a_thread_takes_what_others_left() -> None:
    """Its own share done, the second thread takes from the first one's: 5 + 1 against 1 + 1 + 1 + 1."""
    near(replay(work(([5, 1, 1, 1, 1, 1], 0), threads=2), FREE, 1), 5.0)


def test_a_step_waits_for_those_it_depends_on_alone() -> None:
    chain = work(([3, 1], 0), ([1, 1], 1), threads=2)
    near(replay(chain, FREE, 1), 4.0)
    branches = work(([3, 1], 0), ([1, 1], 0), threads=2)
    near(replay(branches, FREE, 1), 3.0)


def test_teams_run_apart_where_nothing_is_shared() -> None:
    one = work(([1, 1], 0), ([1, 1], 1), threads=2)
    near(replay(one, FREE, 5), 2.0, rate=2.5)


def test_more_threads_than_cores_share_them() -> None:
    found = replay(work(([1] * 20, 0)), Host(2, 1 << 40, 1e15, 1e18), 4)
    assert found.rate == pytest.approx(2 / 20, rel=0.05)
    assert found.busy == pytest.approx(1.0, rel=0.05)


def test_runs_of_several_threads_take_turns() -> None:
    """Three of them on two cores: one at a time, which waits for two others."""
    mine = work(([1, 1], 0), ([1, 1], 1), threads=2)
    near(replay(mine, Host(2, 1 << 40, 1e15, 1e18), 3), 6.0, rate=0.5)
    estimate = price(mine, Host(2, 1 << 40, 1e15, 1e18), 3)
    assert (estimate.seconds, estimate.rate) == (6.0, 0.5)


def test_memory_is_divided_once_more_is_asked_for_than_there_is() -> None:
    """Items of 1 s that move 1e9 bytes, all of their time: four at once on 2e9 bytes/s take 2 s each."""
    host = Host(8, 1 << 10, alone=1e9, memory=2e9)
    each = work(([1.0] * 40, 0), moved=1e9, held=1 << 20)
    near(replay(each, host, 1), 40.0)
    near(replay(each, host, 2), 40.0, rate=2 / 40)
    crowded = replay(each, host, 4)
    assert crowded.rate == pytest.approx(2 / 40, rel=0.03)  # no more than two have
    in_cache = work(([1.0] * 40, 0), moved=1e9, held=1 << 4)
    near(replay(in_cache, host, 4), 40.0, rate=4 / 40)


def test_parameters_come_from_memory_once_they_and_the_values_exceed_the_cache() -> None:
    mine = work(([1.0], 0), moved=3.0, weights=5.0, held=10, parameters=100)
    assert mine.bytes_per_item(1, l3=110).tolist() == [0.0]
    assert mine.bytes_per_item(1, l3=109).tolist() == [5.0]
    assert mine.bytes_per_item(3, l3=110).tolist() == [5.0]
    assert mine.bytes_per_item(12, l3=110).tolist() == [8.0]


def test_python_makes_one_call_at_a_time() -> None:
    """Requests of 1 s of Python and 1 s of work: ten streams get one a second."""
    found = replay(work(([1.0], 0), call=1.0), FREE, 10)
    assert found.rate == pytest.approx(1.0, rel=0.1)


def test_cores_slow_down_together() -> None:
    near(replay(work(([1.0] * 4, 0)), Host(2, 1, 1e15, 1e18, crowd=0.5), 1), 4.0)
    both = replay(work(([1.0] * 4, 0)), Host(2, 1, 1e15, 1e18, crowd=0.5), 2)
    assert both.rate == pytest.approx(2 / 8, rel=0.15)


def test_a_batch_counts_all_of_its_images() -> None:
    near(replay(work(([2.0], 0), batch=8), FREE, 1), 2.0, rate=4.0)


def test_a_model_that_computes_nothing() -> None:
    near(replay(work(call=0.25), FREE, 1), 0.25)


STEPS = st.lists(
    st.tuples(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=9), st.integers(0, 5)),
    min_size=1,
    max_size=6,
)


@settings(deadline=None, max_examples=60)
@given(STEPS, st.integers(1, 5))
def test_any_schedule_is_within_its_bounds(steps: list[Any], threads: int) -> None:
    """Not below the work divided, nor the longest item; not above it and an item of each step."""
    steps = [(seconds, min(after, i)) for i, (seconds, after) in enumerate(steps)]
    found = replay(work(*steps, threads=threads), FREE, 1)
    total = sum(sum(seconds) for seconds, _ in steps)
    longest = [max(seconds) for seconds, _ in steps]
    assert found.seconds >= max(total / threads, *longest) - 1e-9
    assert found.seconds <= total / threads + sum(longest) + 1e-9


@settings(deadline=None, max_examples=30)
@given(STEPS, st.integers(1, 4), st.integers(1, 3))
def test_compiled_it_does_the_same(steps: list[Any], threads: int, streams: int) -> None:
    steps = [(seconds, min(after, i)) for i, (seconds, after) in enumerate(steps)]
    mine, host = work(*steps, threads=threads, call=0.01, moved=1e6), Host(4, 0, 1e6, 2e6, 0.9)
    plain = replay(mine, host, streams)
    module._compiled = compiled
    try:
        again = replay(mine, host, streams)
        assert (again.seconds, again.rate, again.busy) == pytest.approx(
            (plain.seconds, plain.rate, plain.busy)
        )
    finally:
        module._compiled = lambda: module._replay


compiled = module._compiled


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.floats(0.01, 1.0)), min_size=1, max_size=6), st.integers(1, 5)
)
def test_the_price_is_exact_for_equal_items_one_step_after_the_other(counts: list[Any], threads: int) -> None:
    mine = work(*(([s] * n, i) for i, (n, s) in enumerate(counts)), threads=threads)
    assert price(mine, FREE, 1).seconds == pytest.approx(replay(mine, FREE, 1).seconds)


def test_the_price_knows_what_is_shared() -> None:
    host = Host(8, 1 << 10, alone=1e9, memory=2e9)
    assert price(work(([1.0] * 40, 0), moved=1e9, held=1 << 20), host, 4).rate == pytest.approx(2 / 40)
    assert price(work(([1.0], 0), call=1.0), FREE, 10).rate == pytest.approx(1.0)
    assert price(work(([1.0] * 20, 0)), Host(2, 1, 1e15, 1e18), 4).rate == pytest.approx(2 / 20)
