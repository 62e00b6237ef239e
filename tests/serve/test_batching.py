"""Batches: what they cost, who is in one, what waits, and what an error in one does."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from support.noise import noise
from support.onnx_models import helper, model, value
from support.serving import FREE, Stub, asked, compiled, found, perceptron, serving, stubbed, tensor

from bslite.serve.model import Served
from bslite.serve.price import Price
from bslite.serve.problem import Problem
from bslite.serve.scheduler import Job, Scheduler
from bslite.serve.settings import Settings
from bslite.serve.warm import warm

LINEAR = Price({1: 0.01, 2: 0.02, 4: 0.04})


def test_as_many_rows_as_pay() -> None:
    price = Price({1: 10.0, 2: 12.0, 4: 16.0, 8: 32.0})
    assert [price.rows(n) for n in (1, 2, 3, 4, 7, 8, 100)] == [1, 2, 2, 4, 4, 4, 4]
    assert price.most == 4
    assert LINEAR.rows(4) == LINEAR.most == 1
    assert (price.of(1), price.of(3), price.of(6), price.of(16)) == (10, 14, 24, 64)


def test_waiting_is_for_gaps_that_pay() -> None:
    """By the sum of the times to answer of those that wait and of the next one, after a gap d."""
    price = Price({1: 10.0, 2: 12.0, 4: 16.0})
    for rows in (1, 2, 3):
        d = price.patience(rows)
        now = rows * price.of(rows) + (price.of(rows) - d) + price.of(1)
        later = rows * (d + price.of(rows + 1)) + price.of(rows + 1)
        assert now == pytest.approx(later)
    assert price.patience(1) == pytest.approx(3.0)
    assert price.patience(4) == 0
    assert LINEAR.patience(1) == 0


def scheduled(
    stub: Stub, settings: Settings, work: Callable[[Scheduler, Served], Awaitable[Any]], price: Price = FREE
) -> tuple[Any, list[Sequence[Job]]]:
    """What ``work`` returns on a scheduler with a stub, and the batches that ran."""
    ran: list[Sequence[Job]] = []

    async def run() -> Any:
        with ThreadPoolExecutor(settings.streams) as pool:
            return await asyncio.wait_for(
                work(Scheduler(settings, pool, ran.append), stubbed(stub, price=price)), 20
            )

    return asyncio.run(run()), ran


async def answers(jobs: Sequence[Job]) -> list[Any]:
    return await asyncio.gather(*(job.future for job in jobs), return_exceptions=True)


def test_those_that_wait_run_together_in_order() -> None:
    stub, inputs = Stub(), [noise(1, 2, seed=k) for k in range(20)]
    stub.gate.clear()

    async def work(scheduler: Scheduler, served: Served) -> Any:
        jobs = [scheduler.submit(served, [x]) for x in inputs]
        assert scheduler.waiting == 19
        stub.gate.set()
        return await answers(jobs)

    made, ran = scheduled(stub, Settings(max_delay=0), work)
    for x, found_ in zip(inputs, made, strict=True):
        assert np.array_equal(found_["y"], x + 1)
    assert stub.rows == [1, 8, 8, 2, 1]  # sizes that were measured
    assert [job.batch for batch in ran for job in batch] == [1] + [8] * 16 + [2] * 2 + [1]


def test_no_batch_where_it_does_not_pay() -> None:
    stub = Stub()

    async def work(scheduler: Scheduler, served: Served) -> Any:
        return await answers([scheduler.submit(served, [noise(1, 2)]) for _ in range(6)])

    scheduled(stub, Settings(), work, LINEAR)
    assert stub.rows == [1] * 6


def test_requests_of_other_sizes_run_apart() -> None:
    stub = Stub(lambda x: x)
    stub.gate.clear()
    shapes = [(1, 2), (1, 2), (1, 3), (1, 2), (1, 3), (2, 2)]

    async def work(scheduler: Scheduler, served: Served) -> Any:
        jobs = [scheduler.submit(served, [noise(*shape)]) for shape in shapes]
        stub.gate.set()
        return await answers(jobs)

    made, _ = scheduled(stub, Settings(max_delay=0), work)
    assert [y["y"].shape for y in made] == shapes
    assert stub.rows == [1, 4, 2]


def test_an_error_is_the_one_requests_own() -> None:
    def work_or_not(x: np.ndarray) -> np.ndarray:
        if (x < 0).any():
            raise ValueError("negative")
        return x * 2

    stub = Stub(work_or_not)
    stub.gate.clear()
    inputs = [np.full((1, 2), v, np.float32) for v in (1, 2, -3, 4, 5)]

    async def work(scheduler: Scheduler, served: Served) -> Any:
        jobs = [scheduler.submit(served, [x]) for x in inputs]
        stub.gate.set()
        return await answers(jobs)

    made, _ = scheduled(stub, Settings(max_delay=0), work)
    assert [str(y) if isinstance(y, Exception) else y["y"][0, 0] for y in made] == [2, 4, "negative", 8, 10]
    assert stub.rows == [1, 4, 1, 1, 1, 1]


def test_a_full_queue_refuses_and_says_when() -> None:
    stub = Stub()
    stub.gate.clear()

    async def work(scheduler: Scheduler, served: Served) -> Any:
        jobs = [scheduler.submit(served, [noise(1, 2)]) for _ in range(4)]
        with pytest.raises(Problem, match="3 requests wait already") as refused:
            scheduler.submit(served, [noise(1, 2)])
        scheduler.give_up(jobs[2])  # its client has gone: there is room again
        jobs.append(scheduler.submit(served, [noise(1, 2)]))
        stub.gate.set()
        await answers(jobs)
        return refused.value

    refused, _ = scheduled(stub, Settings(max_queue=3, max_delay=0), work, Price({1: 2.0}))
    assert (refused.status, refused.headers) == (429, {"Retry-After": "6"})
    assert stub.rows == [1] * 4


def test_streams_run_side_by_side() -> None:
    stub = Stub()
    stub.gate.clear()

    async def work(scheduler: Scheduler, served: Served) -> Any:
        jobs = [scheduler.submit(served, [noise(1, 2)]) for _ in range(3)]
        both = [await asyncio.to_thread(stub.runs.acquire, True, 20) for _ in range(2)]
        assert scheduler.waiting == 1
        stub.gate.set()
        await answers(jobs)
        return both

    assert scheduled(stub, Settings(streams=2), work, LINEAR)[0] == [True, True]


def test_an_idle_engine_waits_for_a_request_that_is_near_and_no_longer_than_told() -> None:
    """The estimate of the gap comes from requests before; the price says that company is worth 5 s."""
    stub, slow = Stub(), Price({1: 10.0, 2: 10.0})

    async def work(scheduler: Scheduler, served: Served) -> Any:
        await answers([scheduler.submit(served, [noise(1, 2)])])  # the first knows of no other
        first = scheduler.submit(served, [noise(1, 2)])
        assert scheduler.waiting == 1
        second = scheduler.submit(served, [noise(1, 2)])
        assert scheduler.waiting == 0
        await answers([first, second])
        begin = time.perf_counter()
        alone = scheduler.submit(served, [noise(1, 2)])
        assert scheduler.waiting == 1
        await answers([alone])
        return time.perf_counter() - begin

    waited, _ = scheduled(stub, Settings(max_delay=0.05), work, slow)
    assert stub.rows == [1, 2, 1]
    assert waited >= 0.05


def test_warming_finds_what_can_be_together() -> None:
    node = helper.make_node
    mean = model(
        [node("ReduceMean", ["x"], ["m"], axes=[0], keepdims=1), node("Sub", ["x", "m"], ["y"])],
        [value("x", ["n", 4])], [value("y", ["n", 4])], opset=13,
    )  # fmt: skip
    fixed = model([node("Relu", ["x"], ["y"])], [value("x", [2, 4])], [value("y", [2, 4])])
    scalar = model(
        [node("ReduceSum", ["x"], ["y"], keepdims=0)], [value("x", ["n", 4])], [value("y", [])], opset=13
    )
    reasons = {
        "mean": (mean, "output 'y' of a row depends on the other rows"),
        "fixed": (fixed, "its batch is fixed"),
        "scalar": (scalar, "its batch is fixed"),
        "net": (perceptron(), ""),
    }
    with ThreadPoolExecutor(1) as pool:
        for name, (proto, reason) in reasons.items():
            served = compiled(proto, name)
            warm(served, Settings(max_batch=6), pool)
            assert served.ready
            assert served.alone == reason
            assert 1 in served.price.seconds
        assert {2, 4} <= set(served.price.seconds) <= {1, 2, 4, 6}
        served = compiled(perceptron(), "net")
        warm(served, Settings(max_batch=1), pool)
        assert served.alone == "--max-batch is 1"


def test_many_clients_get_their_own_bits() -> None:
    """Threads that ask at once; whatever ran together, each answer is that of its request alone."""
    served = compiled(perceptron(), "net")
    with serving(served, max_queue=1000) as running:
        served.price = FREE
        inputs = [noise(1 + k % 3, 8, seed=k) for k in range(200)]
        alone = [served.run([x])["scores"] for x in inputs]
        with ThreadPoolExecutor(16) as clients:
            made = list(clients.map(lambda x: running.infer("net", asked(tensor("x", x))), inputs))
        for response, want in zip(made, alone, strict=True):
            assert found(response, "scores").tobytes() == want.tobytes()
        metrics = running.client.get("/metrics").text
        assert 'bslite_requests_total{model="net",status="200"} 200.0' in metrics
        runs = float(metrics.split('bslite_batch_rows_count{model="net"} ')[1].split("\n")[0])
        assert runs < 200
