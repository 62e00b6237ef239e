"""The model's predictions for DeepBench's recurrent layers on a GPU, as a table for the documentation.

python -m bslite.plan.cuda.recurrent.table
"""

from collections.abc import Iterator

from bslite.explore import deepbench
from bslite.explore.gpu import GpuMachine, step_parts
from bslite.explore.problem import Recurrent
from bslite.plan.cuda.recurrent.tiles import choose

BATCHES = (1, 2, 4)
LATENCY = ("h to every block", "sums and functions", "hand-over")  # parts of a step that move no weights


def table(machine: GpuMachine) -> Iterator[str]:
    """Return lines of Markdown; times are microseconds per time step, without the products of its inputs."""
    yield (
        "| layer | MB of weights | KB of an SM: registers, shared memory, read | batch 1: µs a step | "
        "of it latency | batch 2 | batch 4 | batch 1, a launch per step, at least |"
    )
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    problems = {(p.kind, p.hidden): p for p in deepbench.distinct((1,))}
    for kind, hidden in sorted(problems, key=lambda key: (key[0] != "lstm", key[1])):
        p = problems[kind, hidden]
        steps = [_step(Recurrent(kind, hidden, hidden, p.steps, batch), machine) for batch in BATCHES]
        _, latency, places = steps[0]
        weights = p.recurrent_weight_bytes
        rate = machine.l2_bandwidth if weights <= machine.l2_bytes else machine.memory_bandwidth
        launches = machine.launch + 2 * machine.l2_latency + weights / rate
        cells = [
            f"{kind} {hidden}", f"{weights / 1e6:.1f}", places, f"{1e6 * steps[0][0]:.2f}",
            f"{1e6 * latency:.2f}", *(f"{1e6 * seconds:.2f}" for seconds, _, _ in steps[1:]),
            f"{1e6 * launches:.2f}",
        ]  # fmt: skip
        yield "| " + " | ".join(cells) + " |"


def _step(p: Recurrent, machine: GpuMachine) -> tuple[float, float, str]:
    """Return a step's seconds, the part of them that is latency, and where an SM's weights are."""
    loops = choose(p, machine)
    assert loops is not None
    cut = loops.tile
    blocks = -(-p.hidden // loops.units) * -(-p.batch // cut.batch)
    parts = step_parts(p, machine, cut.work(machine, blocks, loops.stays, p.hidden), loops.stays)
    column = 4 * cut.rows * cut.threads / 1024
    near, far = cut.dynamic / 1024, column * cut.streamed(p.hidden)
    places = f"{column * cut.held:.0f}, {near:.0f}, {far:.0f}" if loops.stays else "a launch per step"
    latency = sum(parts[name][0] for name in LATENCY)
    return sum(longer for longer, _ in parts.values()), latency, places


if __name__ == "__main__":
    print("\n".join(table(GpuMachine())))
