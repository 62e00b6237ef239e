"""The simulator of a step against cases computed by hand."""

import math

import pytest

from benchmarks.ring import Bucket, Link, step

PLAIN = Link(latency=0.5, per_byte=0.01)


def test_a_ring_sends_an_nth_part_2_n_minus_1_times() -> None:
    assert PLAIN.exchange(100, 1) == 0
    assert PLAIN.exchange(100, 2) == pytest.approx(2 * (0.5 + 0.01 * 50))
    assert PLAIN.exchange(100, 4) == pytest.approx(6 * (0.5 + 0.01 * 25))


def test_without_buckets_or_others_a_step_takes_what_it_computes() -> None:
    assert step([], 3.0, 8, PLAIN) == 3.0
    assert step([Bucket(1.0, 100), Bucket(3.0, 100)], 3.0, 1, PLAIN) == 3.0


def test_what_is_exchanged_while_it_computes_costs_nothing() -> None:
    """Two seconds each, from 1 to 3 and from 4 to 6; the step ends at 7."""
    assert step([Bucket(1.0, 100), Bucket(4.0, 100)], 7.0, 2, PLAIN) == pytest.approx(7.0)


def test_buckets_wait_for_each_other() -> None:
    """From 1 to 3, from 3 to 5, from 5 to 7, though the last gradients are there at 4."""
    buckets = [Bucket(1.0, 100), Bucket(2.0, 100), Bucket(4.0, 100)]
    assert step(buckets, 4.0, 2, PLAIN) == pytest.approx(7.0)


def test_gradients_that_seem_later_than_the_end_are_there_at_the_end() -> None:
    """Medians of one and of the other may have it so."""
    assert step([Bucket(3.1, 100)], 3.0, 2, PLAIN) == pytest.approx(5.0)


def test_the_last_bucket_is_exchanged_after_the_end() -> None:
    assert step([Bucket(5.0, 300)], 5.0, 2, PLAIN) == pytest.approx(5 + 2 * (0.5 + 1.5))


def test_cores_that_processes_share() -> None:
    """Four on two cores compute half as fast. Two on two cores are in no one's way until they exchange."""
    assert step([], 3.0, 4, PLAIN, cores=2) == pytest.approx(6.0)
    assert step([Bucket(3.0, 100)], 3.0, 4, PLAIN, cores=2) == pytest.approx(6 + 6 * (0.5 + 0.25))
    assert step([], 3.0, 2, PLAIN, cores=2) == pytest.approx(3.0)


def test_exchanging_takes_cores_from_computing() -> None:
    """From 1 on, 2 (1 + 1/2) cores are wanted and 2 are there: an exchange of 2 takes 3. Then 1 is left."""
    busy = Link(0.5, 0.01, busy=0.5)
    assert step([Bucket(1.0, 100)], 4.0, 2, busy, cores=2) == pytest.approx(1 + 3 + 1)
    assert step([Bucket(1.0, 100)], 4.0, 2, busy, cores=math.inf) == pytest.approx(4)
    assert step([Bucket(1.0, 100)], 2.0, 2, busy, cores=2) == pytest.approx(1 + 1.5 + 1)
