"""Steps of training: bslite and torch eager in turns, forward, loss, backward and a fused SGD.

``python -m benchmarks.training`` takes torchvision's networks and two recurrent layers with seeded weights.
torch runs convolutional networks with channels last, its fastest form. Before anything is timed, a step of
both has to give the same loss and the same gradients, within what float32 allows.
"""

import argparse
import copy
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import bslite
from benchmarks import output
from benchmarks.peers import nets
from benchmarks.tables import geometric_mean, median_ratio, ms, ratio, table

NETWORKS = ("resnet18", "resnet50", "mobilenet_v2", "densenet121", "efficientnet_b0", "vgg11")
RECURRENT = ("LSTM", "GRU")
NAMES = (*NETWORKS, *RECURRENT)
HIDDEN, STEPS, CLASSES = 512, 25, 10
CLOSE = 2e-3  # of two float32 steps: the distance of all gradients together, relative

Times = tuple[float, float, float]


@dataclass(frozen=True)
class Result:
    """Seconds of forward pass, backward pass and optimizer, of each: medians; the ratio round by round."""

    name: str
    ours: Times = (0.0, 0.0, 0.0)
    theirs: Times = (0.0, 0.0, 0.0)
    ratio: float | None = None
    error: float = 0.0  # distance of the gradients from torch's, relative
    first: float = 0.0  # seconds of bslite's first step
    in_torch: Sequence[str] = field(default_factory=tuple)  # why calls ran in torch

    @property
    def right(self) -> bool:
        """Whether the gradients are torch's."""
        return self.error <= CLOSE


def made(name: str) -> Any:
    """A module in training mode that gives scores of classes."""
    import torch

    torch.manual_seed(0)
    if name in NETWORKS:
        return nets.module(name, 0).train()

    class Last(torch.nn.Module):
        """The last step of a recurrent layer, as scores."""

        def __init__(self) -> None:
            super().__init__()
            self.cells = getattr(torch.nn, name)(HIDDEN, HIDDEN)
            self.scores = torch.nn.Linear(HIDDEN, CLASSES)

        def forward(self, x: Any) -> Any:
            return self.scores(self.cells(x)[0][-1])

    return Last().train()


def example(name: str, batch: int, side: int) -> tuple[Any, Any]:
    """What a step takes: inputs, and the classes they belong to."""
    import torch

    torch.manual_seed(1)
    shape = (batch, 3, side, side) if name in NETWORKS else (STEPS, batch, HIDDEN)
    return torch.randn(shape), torch.randint(0, CLASSES, (batch,))


class Trained:
    """A module with its optimizer; ``step()`` gives the seconds of its three parts."""

    def __init__(self, module: Any, x: Any, y: Any) -> None:
        import torch

        self.module, self.x, self.y = module, x, y
        self.optimizer = torch.optim.SGD(module.parameters(), lr=1e-3, momentum=0.9, fused=True)

    def step(self) -> Times:
        """One step."""
        from torch.nn.functional import cross_entropy

        self.optimizer.zero_grad()
        start = time.perf_counter()
        loss = cross_entropy(self.module(self.x), self.y)
        between = time.perf_counter()
        loss.backward()
        after = time.perf_counter()
        self.optimizer.step()
        return between - start, after - between, time.perf_counter() - after

    def gradients(self) -> Any:
        """All gradients of a step that changes nothing, in a row."""
        import torch
        from torch.nn.functional import cross_entropy

        torch.manual_seed(2)  # of dropouts
        self.module.zero_grad()
        cross_entropy(self.module(self.x), self.y).backward()
        return torch.cat([p.grad.flatten() for p in self.module.parameters()])


def compared(name: str, batch: int, side: int, threads: int, rounds: int) -> Result:
    """A network's steps, in turns."""
    import torch

    from bslite.dropin.runner import runner_of

    module, (x, y) = made(name), example(name, batch, side)
    twin, given = copy.deepcopy(module), x
    if name in NETWORKS:
        twin, given = (
            twin.to(memory_format=torch.channels_last),
            x.contiguous(memory_format=torch.channels_last),
        )
    wrapped = bslite.optimize(module, training=True, tune=False, threads=threads, fallback="silent")
    ours, theirs = Trained(wrapped, x, y), Trained(twin, given, y)
    start = time.perf_counter()
    found = ours.gradients()
    first, want = time.perf_counter() - start, theirs.gradients()
    error = float((found - want).norm() / want.norm())
    times: dict[Trained, list[Times]] = {ours: [], theirs: []}
    order = random.Random(0)
    for each in times:
        each.step()
    for _ in range(rounds):
        for each in order.sample(list(times), 2):
            each.step()  # the threads of the one before spin no more
            times[each].append(each.step())
    whole = [[sum(t) for t in times[each]] for each in (ours, theirs)]
    return Result(
        name,
        _medians(times[ours]),
        _medians(times[theirs]),
        median_ratio(whole[1], whole[0]),
        error,
        first,
        tuple(runner_of(wrapped).in_torch),
    )


def _medians(times: Sequence[Times]) -> Times:
    forward, backward, optimizer = (statistics.median(part) for part in zip(*times, strict=True))
    return forward, backward, optimizer


def as_dict(results: Sequence[Result], limits: None, header: dict[str, Any]) -> dict[str, Any]:
    """Everything, ready for JSON."""
    return {**header, "results": [asdict(r) for r in results]}


def markdown(results: Sequence[Result], limits: None, header: dict[str, Any]) -> str:
    """A row for each network."""
    head = [
        "network",
        "bslite, ms",
        "forward",
        "backward",
        "torch, ms",
        "forward",
        "backward",
        "ratio",
        "error",
    ]
    rows = [
        [
            r.name,
            ms(sum(r.ours)),
            *map(ms, r.ours[:2]),
            ms(sum(r.theirs)),
            *map(ms, r.theirs[:2]),
            ratio(r.ratio),
            f"{r.error:.0e}",
        ]
        for r in results
    ]
    mean = geometric_mean([r.ratio for r in results])
    said = f"A step is forward, loss, backward and SGD. Geometric mean of the ratios {ratio(mean)}."
    left = [f"- {r.name}: {why}" for r in results for why in r.in_torch]
    return output.document(
        table(head, rows), said, *(["In torch:\n\n" + "\n".join(left)] if left else []), output.where(header)
    )


def main(arguments: list[str] | None = None, compare: Callable[..., Result] | None = None) -> int:
    """Measure all networks and print a table. The exit code is 1 if gradients are wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.training", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--networks", nargs="+", choices=NAMES, default=NAMES, metavar="NAME")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--side", type=int, default=224, help="rows and columns of an image")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    output.add_options(parser, plot=False)
    options = parser.parse_args(arguments)
    import torch

    torch.set_num_threads(options.threads)
    run = output.Run("training", options, as_dict, markdown)
    for name in options.networks:
        found = (compare or compared)(name, options.batch, options.side, options.threads, options.rounds)
        said = "right" if found.right else "WRONG"
        run.add(found, f"{name}: {said}, {ratio(found.ratio)} times as fast as torch")
    run.finish()
    return int(any(not r.right for r in run.results))


if __name__ == "__main__":
    sys.exit(main())
