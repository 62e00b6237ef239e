"""Memory of a step of training, measured in a process of its own for each engine."""

from benchmarks import training_steps as steps
from benchmarks.memory import Growth, apart

RUNS = 3


def memory_of(name: str, engine: str, batch: int, side: int, threads: int) -> dict[str, int]:
    """Bytes: ``peak`` that steps add to the resident memory of a process that has module, input and
    libraries; ``making`` the same in the first step, which prepares; ``saved`` between forward and backward
    pass by bslite and torch eager.

    Raises Unmeasurable.
    """
    case = {"name": name, "engine": engine, "batch": batch, "side": side, "threads": threads}
    return apart(__name__, case)


def measure(name: str, engine: str, batch: int, side: int, threads: int) -> dict[str, int]:
    """As `memory_of`, of this process, which must be a fresh one."""
    import torch

    torch.set_num_threads(threads)
    small = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Flatten(), torch.nn.Linear(288, 10))
    warm = steps.trained(small, torch.randn(2, 3, 8, 8), torch.tensor([0, 1]), engine, threads)
    for _ in range(2):
        warm.step()
    own = steps.trained(steps.made(name), *steps.example(name, batch, side), engine, threads)
    growth = Growth()
    own.step()
    found = {"making": growth.peak()}
    growth.restart_peak()
    for _ in range(RUNS):
        own.step()
    found["peak"] = growth.peak()
    if engine == steps.OURS:
        import bslite

        reports = bslite.report(own.module).training
        found["saved"] = sum(part.saved_bytes for each in reports for part in each.parts)
    elif steps.PEERS[engine] is None:
        found["saved"] = own.saved_bytes()
    return found
