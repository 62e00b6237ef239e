"""Training in two processes over gloo: gradients are the means of the shards', and overlap; errors end it."""

import json
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.processes
CLOSE = 2e-6  # what float32 allows
LIMIT = 240.0  # seconds after which the processes are killed, and the test fails

PRELUDE = """
import copy, datetime, json, os, sys, warnings
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
import bslite
from bslite.dropin.training import part
from bslite.dropin.runner import runner_of
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
warnings.filterwarnings("ignore", message="(?s).*gloo|.*hostname")
rank, port = map(int, sys.argv[1:])
torch.set_num_threads(1)
dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2,
                        timeout=datetime.timedelta(seconds=20))

def ended():
    # When both have come this far: torch's threads may abort a process that ends as usual.
    sys.stdout.flush()
    dist.barrier()
    os._exit(0)

def made():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.GroupNorm(4, 16), nn.SiLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 5)).train()

def wrapped(net, **options):
    return DDP(bslite.optimize(net, training=True, tune=False, bucket_mb=0.005, fallback="error"), **options)

def grads(net):
    return torch.cat([p.grad.flatten() for p in net.parameters()])

def alone(x, y, made=made):
    net = made().double()
    F.cross_entropy(net(x.double()), y).backward()
    return grads(net)

def far(a, b):
    return float((a.double() - b).norm() / b.norm())

def in_bslite(ddp):
    assert runner_of(ddp.module).in_torch == {}, runner_of(ddp.module).in_torch
    return max(len(t.parts) for t in runner_of(ddp.module).trainer.made._values.values())

torch.manual_seed(7)
x, y = torch.randn(8, 3, 12, 12), torch.arange(8) % 5
mine = slice(4 * rank, 4 * rank + 4)
"""


class Pair:
    """Two processes that run one script; each prints a line of JSON at its end. Leaving it ends them."""

    def __init__(self, script: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-c", PRELUDE + script, str(rank), port],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1],
            )
            for rank in range(2)
        ]  # fmt: skip

        self.timer = threading.Timer(LIMIT, self.end)
        self.timer.start()

    def results(self) -> list[Any]:
        """What both have printed; both must succeed."""
        ended = [p.communicate() for p in self.processes]
        for process, (_, error) in zip(self.processes, ended, strict=True):
            assert process.returncode == 0, error
        return [json.loads(out.splitlines()[-1]) for out, _ in ended]

    def end(self) -> None:
        """Kill both."""
        for process in self.processes:
            process.kill()

    def __enter__(self) -> "Pair":
        return self

    def __exit__(self, *why: object) -> None:
        self.timer.cancel()
        self.end()
        for process in self.processes:
            process.communicate()


WHOLE = """
def means():
    ddp, peer = wrapped(made()), DDP(made())
    optimizers = [torch.optim.SGD(net.parameters(), 0.1, momentum=0.9) for net in (ddp, peer)]
    for net in (ddp, peer):
        F.cross_entropy(net(x[mine]), y[mine]).backward()
    exact = alone(x, y)
    shards = torch.stack([alone(x[i:i + 4], y[i:i + 4]) for i in (0, 4)]).mean(0)
    found = {"one": [far(grads(ddp), exact), far(grads(peer), exact)],
             "mean": [far(grads(ddp), shards), far(grads(peer), shards)], "stages": in_bslite(ddp)}
    for step in range(3):
        for net, optimizer in zip((ddp, peer), optimizers):
            optimizer.step()
            optimizer.zero_grad()
            F.cross_entropy(net(x[mine] + step), y[mine]).backward()
    both = [torch.empty_like(grads(ddp)) for _ in range(2)]
    dist.all_gather(both, grads(ddp))
    in_bslite(ddp)
    return {**found, "steps": far(grads(ddp), grads(peer).double()), "same": torch.equal(*both)}

def no_sync():
    ddp, start = wrapped(made()), 4 * rank
    halves = slice(start, start + 2), slice(start + 2, start + 4)
    with ddp.no_sync():
        (F.cross_entropy(ddp(x[halves[0]]), y[halves[0]]) / 2).backward()
    own = far(2 * grads(ddp), alone(x[halves[0]], y[halves[0]]))
    (F.cross_entropy(ddp(x[halves[1]]), y[halves[1]]) / 2).backward()
    in_bslite(ddp)
    return own, far(grads(ddp), alone(x, y))

def uneven():
    ddp, sizes, errors = wrapped(made()), ((3, 4, 3), (5,)), []
    with ddp.join(divide_by_initial_world_size=False):
        for step, n in enumerate(sizes[rank]):
            ddp.zero_grad()
            F.cross_entropy(ddp(x[:n]), y[:n]).backward()
            shards = [alone(x[:each[step]], y[:each[step]]) for each in sizes if step < len(each)]
            errors.append(far(grads(ddp), sum(shards) / len(shards)))
    in_bslite(ddp)
    return errors

def statistics():
    nets = []
    for wrap in (wrapped, DDP):
        torch.manual_seed(0)
        net = wrap(nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(),
                                 nn.Linear(800, 5)).train())
        for step in range(2):
            net.zero_grad()
            F.cross_entropy(net(x[mine] * (1 + rank)), y[mine]).backward()
        nets.append(net)
    in_bslite(nets[0])
    pairs = zip(nets[0].buffers(), nets[1].buffers())
    return [far(grads(nets[0]), grads(nets[1]).double()), *(far(a.float(), b.double()) for a, b in pairs)]

def overlap():
    events, backward = [], part._Step.backward
    def noted(ctx, *given):
        made = backward(ctx, *given)
        events.append("stage")
        return made
    def hook(state, bucket):
        events.append("bucket")
        return allreduce_hook(None, bucket)
    part._Step.backward = staticmethod(noted)
    ddp = wrapped(made(), bucket_cap_mb=0.005)
    ddp.register_comm_hook(None, hook)
    for _ in range(2):
        events.clear()
        F.cross_entropy(ddp(x[mine]), y[mine]).backward()
    part._Step.backward = staticmethod(backward)
    return events

def outside():
    net = bslite.optimize(DDP(made()), training=True, tune=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        F.cross_entropy(net(x[mine]), y[mine]).backward()
    said = [str(w.message) for w in caught if "runs in torch" in str(w.message)]
    return far(grads(net), alone(x, y)), said

class Either(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.paths = nn.Linear(6, 8), nn.ModuleList(nn.Linear(8, 5) for _ in range(2))
    def forward(self, x, path):
        return self.paths[path](self.first(x).tanh())

def unused():
    given, found = torch.randn(8, 6), []
    for options in ({}, {"gradient_as_bucket_view": True}):
        ddp = wrapped(Either(), find_unused_parameters=True, **options)
        for step in range(2):
            ddp.zero_grad()
            F.cross_entropy(ddp(given[mine], rank), y[mine]).backward()
        exact = Either().double()
        for r, own in enumerate((slice(0, 4), slice(4, 8))):
            (F.cross_entropy(exact(given[own].double(), r), y[own]) / 2).backward()
        in_bslite(ddp)
        found.append(far(grads(ddp), grads(exact)))
    return found

tasks = means, no_sync, uneven, statistics, overlap, outside, unused
print(json.dumps({f.__name__: f() for f in tasks}))
ended()
"""


@pytest.fixture(scope="module")
def results() -> Any:
    """What both processes have seen of all of it."""
    with Pair(WHOLE) as pair:
        return pair.results()


def test_gradients_are_the_mean_of_the_shards(results: Any) -> None:
    """Of what two processes make of half a batch each, and of what one makes of all of it; at every step."""
    for found in (r["means"] for r in results):
        for ours, theirs in (found["one"], found["mean"]):
            assert ours <= 4 * theirs + 2e-7
        assert found["stages"] > 2
        assert found["same"]
        assert found["steps"] < CLOSE


def test_gradients_add_up_without_exchange_in_no_sync(results: Any) -> None:
    assert max(max(r["no_sync"]) for r in results) < CLOSE


def test_batches_of_other_sizes_and_other_numbers(results: Any) -> None:
    """Rank 0 has two batches more."""
    assert [len(r["uneven"]) for r in results] == [3, 1]
    assert max(max(r["uneven"]) for r in results) < CLOSE


def test_statistics_are_of_each_shard(results: Any) -> None:
    """A batch norm goes by its own half, as torch's does; gradients are of both."""
    assert max(max(r["statistics"]) for r in results) < CLOSE


def test_sums_begin_while_the_backward_pass_goes_on(results: Any) -> None:
    """The first bucket is on its way before the last stage's gradients are made."""
    for events in (r["overlap"] for r in results):
        assert events.count("stage") > 2
        assert events.index("bucket") < len(events) - 1 - events[::-1].index("stage")


def test_parameters_that_a_process_does_not_use(results: Any) -> None:
    """Each process takes another path; of a path's gradients half is the other's, which is none."""
    assert max(max(r["unused"]) for r in results) < CLOSE


def test_around_a_distributed_module_torch_runs_and_says_so(results: Any) -> None:
    """What it exchanges would be lost in a trace."""
    for error, said in (r["outside"] for r in results):
        assert error < CLOSE
        assert "DistributedDataParallel(bslite.optimize(module))" in said[0]


def test_a_process_that_is_killed_ends_the_other() -> None:
    script = """
ddp = wrapped(made())
for step in range(100000):
    F.cross_entropy(ddp(x[mine]), y[mine]).backward()
    print("step", flush=True)
"""
    with Pair(script) as pair:
        first, second = pair.processes
        for process in (first, second):
            assert process.stdout is not None
            assert process.stdout.readline() == "step\n"
        second.kill()
        _, error = first.communicate(timeout=60)
    assert first.returncode not in (0, None)
    assert "RuntimeError" in error
    assert "peer" in error


def test_compiled_by_torch() -> None:
    """Dynamo itself cuts the graph at its buckets."""
    script = """
class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.third = nn.Linear(256, 1024), nn.Linear(1024, 1024), nn.Linear(1024, 5)
    def forward(self, x):
        return self.third(self.second(self.first(x).tanh()).tanh())

net, x, parts, call = DDP(Wide(), bucket_cap_mb=1), torch.randn(8, 256), [], part.TrainedPart.__call__
def noted(self, tensors):
    parts.append(1)
    return call(self, tensors)
part.TrainedPart.__call__ = noted
F.cross_entropy(torch.compile(net, backend="bslite")(x[mine]), y[mine]).backward()
print(json.dumps([far(grads(net), alone(x, y, Wide)), len(parts)]))
ended()
"""
    with Pair(script) as pair:
        for error, parts in pair.results():
            assert error < CLOSE
            assert parts > 1
