"""``python -m benchmarks.stacks``: BrainSlug's own experiment, stacks of pooling, batch norm and ReLU.

A stack is (max_pool 3x3 stride 1 padding 1, batch_norm, relu) repeated ``depth`` times on ``[N, C, H, W]``
(after arXiv 1804.08378). No weights to speak of and hardly any arithmetic: what is measured is what it costs
to take each layer's image to memory and back. bslite depth-first is timed against the same kernels layer by
layer, and against torch; they take turns, and the answers are compared first.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import roofline
from benchmarks.peers import report
from benchmarks.peers.engines import ENGINES, Unavailable
from bslite.cli.timing import interleaved, medians
from bslite.spec import Array, GraphBuilder, ModelSpec
from bslite.verification import FACTOR, TINY

RIVALS = ("bslite", "bslite-layerwise", "torch-nhwc", "inductor")
OPS = 3  # layers of one block
CHECKED = 2  # images compared with float64; the rest by being the same bits layer by layer


class Stack:
    """The model in torch and in bslite, with the same numbers, and an input; what `ENGINES` are made from."""

    def __init__(self, depth: int, shape: tuple[int, int, int, int], seed: int = 0) -> None:
        import torch

        rng = np.random.default_rng(seed)
        self.depth, self.shape = depth, shape
        layers: list[Any] = []
        for _ in range(depth):
            norm: Any = torch.nn.BatchNorm2d(shape[1])
            for tensor, low, high in (
                (norm.weight, 0.8, 1.2), (norm.bias, -0.1, 0.3),
                (norm.running_mean, -0.1, 0.1), (norm.running_var, 0.8, 1.2),
            ):  # fmt: skip
                with torch.no_grad():
                    tensor.copy_(torch.from_numpy(rng.uniform(low, high, shape[1])))
            layers += [torch.nn.MaxPool2d(3, stride=1, padding=1), norm, torch.nn.ReLU()]
        self.module = torch.nn.Sequential(*layers).eval()
        n, c, h, w = shape
        # Channels-last memory for every rival: what each of them likes best.
        self.x: Array = rng.standard_normal((n, h, w, c), np.float32).transpose(0, 3, 1, 2)

    @property
    def spec(self) -> ModelSpec:
        """A new ModelSpec, with no plans made yet."""
        graph = GraphBuilder(f"stack of {self.depth}")
        value = graph.input("x", ("N", *self.shape[1:]), self.shape)
        roles = ("weight", "bias", "running_mean", "running_var")
        for i in range(self.depth):
            norm = self.module[OPS * i + 1]
            names = {role: f"{i}.{role}" for role in roles}
            graph.params.update({names[role]: getattr(norm, role).detach().numpy() for role in roles})
            value = graph.add("max_pool2d", f"{i}.pool", value, kernel=3, stride=1, padding=1)
            value = graph.add("batch_norm", f"{i}.norm", value, params=names, eps=norm.eps)
            value = graph.add("relu", f"{i}.relu", value)
        return graph.build(value)

    @property
    def op_bytes(self) -> int:
        """Bytes that go in and out of all the ops, if each is taken on its own."""
        return 2 * OPS * self.depth * self.x.nbytes

    def exact(self) -> tuple[Array, float]:
        """The float64 answer for the first `CHECKED` images, and how far torch in float32 is from it."""
        import copy

        import torch

        few = torch.from_numpy(self.x[:CHECKED])
        with torch.inference_mode():
            exact = copy.deepcopy(self.module).double()(few.double()).numpy()
            return exact, distance(self.module(few).numpy(), exact)


@dataclass
class Result:
    """One stack at one batch size and number of threads; seconds, rivals by name."""

    depth: int
    batch: int
    threads: int
    op_bytes: int
    rounds: dict[str, list[float]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)  # medians over the rounds
    failures: dict[str, str] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)  # bytes between the layers, bslite's

    def ratio(self, other: str) -> float | None:
        """How many times as long as bslite ``other`` takes: the median over rounds of the ratio in each."""
        if not {"bslite", other} <= self.rounds.keys():
            return None
        pairs = zip(self.rounds[other], self.rounds["bslite"], strict=True)
        return statistics.median(theirs / ours for theirs, ours in pairs)

    @property
    def best_peer(self) -> str | None:
        """The fastest rival that is not ours."""
        others = {name: s for name, s in self.seconds.items() if not ENGINES[name].ours}
        return min(others, key=others.__getitem__) if others else None


def distance(answer: Array, exact: Array) -> float:
    """Relative L2."""
    if answer.shape != exact.shape:
        return float("inf")
    return float(np.linalg.norm(answer - exact) / np.linalg.norm(exact))


def compare(stack: Stack, threads: int, rivals: list[str], rounds: int) -> Result:
    """Check that all give the same answer, then time them in turns. Raises AssertionError if ours differ."""
    result = Result(stack.depth, stack.shape[0], threads, stack.op_bytes)
    exact, theirs = stack.exact()
    calls: dict[str, Callable[[], Any]] = {}
    bits: dict[str, Array] = {}
    for name in rivals:
        try:
            engine = ENGINES[name](stack, threads)  # type: ignore[arg-type]  # a Stack has what they use of a Net
            answer = engine.answer(engine())
        except Unavailable as e:
            result.failures[name] = str(e)
            continue
        error = distance(answer[:CHECKED], exact)
        assert error <= FACTOR * theirs + TINY, f"{name}: error {error:.1e}, torch's {theirs:.1e}"
        calls[name] = engine
        if engine.ours:
            bits[name] = answer
            result.memory[name] = between_layers(engine, threads)
    if len(bits) == 2:
        same = np.array_equal(bits["bslite"], bits["bslite-layerwise"])
        assert same, f"depth {stack.depth}: depth-first and layerwise differ in their bits"
    bits.clear()
    result.rounds = interleaved(calls, rounds)
    result.seconds = medians(result.rounds)
    return result


def between_layers(engine: Any, threads: int) -> int:
    """Bytes bslite's plan keeps between layers: the arena, and each thread's own."""
    from bslite.engines.cpu import prepare

    plan = prepare(engine.spec, [engine.x], threads, engine.layerwise).plan
    return 4 * (plan.arena_size + plan.threads * plan.scratch_size)


def markdown(results: list[Result], lines: dict[int, roofline.Roofline]) -> str:
    """One table for each number of threads."""
    parts = []
    for threads, line in lines.items():
        mine = [r for r in results if r.threads == threads]
        names = [name for name in RIVALS if any(name in r.seconds for r in mine)]
        head = [
            "depth",
            "batch",
            *(f"{name}, ms" for name in names),
            "layerwise / bslite",
            "best peer / bslite",
        ]
        head += ["bslite, GB/s", "of memory's", "MB between layers", "layerwise"]
        rows = [head, ["---:"] * len(head)]
        for r in mine:
            row = [str(r.depth), str(r.batch), *(_ms(r.seconds.get(name)) for name in names)]
            row += [
                _ratio(r.ratio("bslite-layerwise")),
                _ratio(r.ratio(r.best_peer) if r.best_peer else None),
            ]
            rate = r.op_bytes / r.seconds["bslite"]
            row += [f"{rate / 1e9:.0f}", f"{rate / line.bandwidth:.1f} x"]
            row += [f"{r.memory.get(name, 0) / 1e6:.1f}" for name in ("bslite", "bslite-layerwise")]
            rows.append(row)
        means = [report.geometric_mean([r.ratio("bslite-layerwise") for r in mine])]
        means.append(report.geometric_mean([r.ratio(r.best_peer) if r.best_peer else None for r in mine]))
        rows.append(["mean", "", *[""] * len(names), *map(_ratio, means), "", "", "", ""])
        text = "\n".join("| " + " | ".join(row) + " |" for row in rows)
        parts.append(f"**{threads} thread(s)**, memory {line.bandwidth / 1e9:.1f} GB/s\n\n{text}")
    parts.append(
        "Medians of interleaved rounds; ratios are medians of each round's ratio, their mean is geometric. "
        "`GB/s`: the bytes into and out of every op, were each taken on its own, over bslite's time; more "
        "than memory's is what depth-first execution saves. Its answer is row-major `[N, C, H, W]`: "
        "that costs it one transposing copy that torch, channels-last throughout, does not make."
    )
    here = report.machine()
    versions = ", ".join(f"{name} {version}" for name, version in report.versions().items())
    parts.append(f"{here['cpu']}, {here['cores']} core(s) available. Commit {report.commit()}. {versions}.")
    return "\n\n".join(parts) + "\n"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:.2f}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def main(arguments: list[str] | None = None) -> int:
    """Run the experiment."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stacks", description=__doc__)
    parser.add_argument("--depth", nargs="+", type=int, default=[1, 2, 4, 8, 16, 40])
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 16, 64])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--image", nargs=3, type=int, default=[64, 56, 56], metavar=("C", "H", "W"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--peers", nargs="+", choices=RIVALS, default=RIVALS)
    parser.add_argument("--json", type=Path, help="write everything measured here")
    parser.add_argument("--md", type=Path, help="write the tables here")
    options = parser.parse_args(arguments)
    if "bslite" not in options.peers:
        parser.error("--peers: bslite must be among them")
    start = time.perf_counter()
    results: list[Result] = []
    lines: dict[int, roofline.Roofline] = {}
    for threads in options.threads:
        lines[threads] = roofline.measure(threads)
        for depth in options.depth:
            for batch in options.batch:
                stack = Stack(depth, (batch, *options.image))
                results.append(compare(stack, threads, list(options.peers), options.rounds))
                each = ", ".join(f"{name} {_ms(s)} ms" for name, s in results[-1].seconds.items())
                passed = time.perf_counter() - start
                print(
                    f"[{passed:6.1f} s] {threads} thread(s), depth {depth}, batch {batch}: {each}",
                    file=sys.stderr,
                )
    text = markdown(results, lines)
    if options.json:
        plain = {
            key: str(value) if isinstance(value, Path) else value for key, value in vars(options).items()
        }
        data = {
            "commit": report.commit(), "machine": report.machine(), "versions": report.versions(),
            "options": plain, "roofline": {t: asdict(line) for t, line in lines.items()},
            "results": [asdict(r) for r in results],
        }  # fmt: skip
        options.json.write_text(json.dumps(data, indent=1) + "\n")
    if options.md:
        options.md.write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
