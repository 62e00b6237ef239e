"""What a call of a wrapped module costs beyond its arithmetic: ``python -m benchmarks.dropin_overhead``.

An MLP of three layers and a batch of one show it: torch eager, the wrapped module, the engine's own call and
the question whether the module has changed, in turns; less than a minute on a quiet machine. In such turns
all of it stays in the caches. So the question is asked as well after calls of a network of many layers, whose
images and weights drive it out. The exit code is 1 if the wrapped module costs 30 us or more beyond the
engine's call, or is slower than eager.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks import origin

MOST_US = 30.0  # that a wrapped call may cost beyond the engine's


def mlp() -> Any:
    """Three linear layers, 64 wide."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = [nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)]
    return nn.Sequential(*layers).eval()


def parts() -> dict[str, Callable[[], Any]]:
    """Calls on a batch of one, answers compared first. AssertionError if the wrapped module's is wrong."""
    import torch

    import bslite

    net, x = mlp(), torch.randn(1, 64)
    fast = bslite.optimize(net, x, tune=False)
    with torch.no_grad():
        assert torch.allclose(fast(x), net(x), atol=1e-6), "the wrapped module's answer is another one"
    runner = fast._bslite_runner
    call = next(iter(runner._state.executables.values())).models[0].prepared([x])
    return {
        "eager": lambda: net(x),
        "wrapped": lambda: fast(x),
        "engine": lambda: call([x]),
        "watch": lambda: runner._current(),
    }


def network() -> Any:
    """Sixty convolutions with batch norms and ReLUs."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = [(nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()) for _ in range(60)]
    return nn.Sequential(*[layer for block in layers for layer in block]).eval()


def after_a_network(calls: int) -> dict[str, float]:
    """Median microseconds of a call of the network, and of the question right after it."""
    import torch

    import bslite

    x = torch.randn(1, 64, 28, 28)
    fast = bslite.optimize(network(), x, tune=False)
    taken: dict[str, list[float]] = {"network": [], "watch then": []}
    with torch.no_grad():
        for _ in range(calls):
            times = [time.perf_counter()]
            for function in (lambda: fast(x), fast._bslite_runner._current):
                function()
                times.append(time.perf_counter())
            for name, begin, end in zip(taken, times, times[1:], strict=False):
                taken[name].append((end - begin) * 1e6)
    return {name: statistics.median(times) for name, times in taken.items()}


def in_turns(functions: Mapping[str, Callable[[], Any]], rounds: int, calls: int) -> dict[str, float]:
    """Median microseconds per call of each, over ``rounds`` of ``calls`` each, measured in turns."""
    import torch

    taken: dict[str, list[float]] = {name: [] for name in functions}
    with torch.no_grad():
        for _ in range(rounds):
            for name, function in functions.items():
                start = time.perf_counter()
                for _ in range(calls):
                    function()
                taken[name].append((time.perf_counter() - start) / calls * 1e6)
    return {name: statistics.median(times) for name, times in taken.items()}


def failures(us: Mapping[str, float]) -> list[str]:
    """What of the bounds does not hold."""
    overhead, found = us["wrapped"] - us["engine"], []
    if overhead >= MOST_US:
        found.append(f"wrapped costs {overhead:.1f} us beyond the engine's, {MOST_US:.0f} is too much")
    if us["wrapped"] > us["eager"]:
        found.append(f"wrapped takes {us['wrapped']:.1f} us, eager {us['eager']:.1f}")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and judge."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dropin_overhead", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--calls", type=int, default=200, help="of each in a round")
    options = parser.parse_args(arguments)
    import torch

    us = in_turns(parts(), options.rounds, options.calls)
    us |= after_a_network(options.calls)
    print(f"{origin.machine()['cpu']}, commit {origin.commit()}, torch {torch.__version__}")
    for name, taken in us.items():
        print(f"{name:10} {taken:8.1f} us a call")
    beyond, ratio = us["wrapped"] - us["engine"], us["wrapped"] / us["eager"]
    print(f"wrapped - engine: {beyond:.1f} us; wrapped / eager: {ratio:.2f}")
    found = failures(us)
    for failure in found:
        print(f"FAILED: {failure}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
