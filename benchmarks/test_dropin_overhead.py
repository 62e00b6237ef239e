"""What a call of a wrapped module costs beyond its arithmetic: ``pytest benchmarks/test_dropin_overhead.py``.

Small models show it. With ``--benchmark-only``, times of eager, wrapped and `bslite.run` stand in one table;
the test that always runs compares wrapped with eager in turns, and looks at where the time goes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import pytest

import bslite

torch = pytest.importorskip("torch")
nn = torch.nn
ROUNDS, CALLS = 30, 200


def mlp() -> Any:
    """Three linear layers, 64 wide."""
    torch.manual_seed(0)
    layers = [nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)]
    return nn.Sequential(*layers).eval()


def callers() -> dict[str, Callable[[], Any]]:
    """The ways to run it on a batch of one."""
    net, x = mlp(), torch.randn(1, 64)
    fast, spec = bslite.optimize(net, x, tune=False), bslite.from_torch(net, x)
    return {"eager": lambda: net(x), "wrapped": lambda: fast(x), "run": lambda: bslite.run(spec, x)}


def in_turns(functions: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Median microseconds per call of each, measured in turns."""
    taken: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(ROUNDS):
        for name, function in functions.items():
            start = time.perf_counter()
            for _ in range(CALLS):
                function()
            taken[name].append((time.perf_counter() - start) / CALLS * 1e6)
    return {name: statistics.median(times) for name, times in taken.items()}


@pytest.mark.benchmark(group="a call of a small model")
@pytest.mark.parametrize("name", ["eager", "wrapped", "run"])
def test_call(benchmark: Any, name: str) -> None:
    function = callers()[name]
    with torch.no_grad():
        function()
        benchmark(function)


def test_wrapped_is_not_slower_than_eager() -> None:
    """And costs under 30 us beyond the engine's own time for the arithmetic."""
    net, x = mlp(), torch.randn(1, 64)
    fast = bslite.optimize(net, x, tune=False)
    runner = fast._bslite_runner
    model = next(iter(runner._state.executables.values())).models[0]
    call = model.prepared([x])
    parts = {
        "eager": lambda: net(x),
        "wrapped": lambda: fast(x),
        "engine": lambda: call([x]),
        "watch": lambda: runner._current(),
    }
    with torch.no_grad():
        times = in_turns(parts)
    print(", ".join(f"{name} {us:.1f} us" for name, us in times.items()))
    assert times["wrapped"] - times["engine"] < 30
    assert times["wrapped"] < 1.2 * times["eager"]  # measured: 0.8
