"""``python -m benchmarks.stacks``: BrainSlug's own experiment, stacks of pooling, batch norm and ReLU.

A stack is (max_pool 3x3 stride 1 padding 1, batch_norm, relu) repeated ``depth`` times on ``[N, C, H, W]``
(after arXiv 1804.08378). No weights to speak of and hardly any arithmetic: what is measured is what it costs
to take each layer's image to memory and back. bslite depth-first is timed against the same kernels layer by
layer, and against torch; they take turns, and the answers are compared first.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from benchmarks import output, roofline
from benchmarks.memory import between_layers
from benchmarks.output import document, failed, where
from benchmarks.peers.engines import ENGINES
from benchmarks.peers.nets import Net
from benchmarks.rivals import Times, Unavailable
from benchmarks.tables import geometric_mean, megabytes, ms, ratio, table
from bslite.cli.timing import interleaved, medians
from bslite.spec import Array, GraphBuilder, ModelSpec

RIVALS = ("bslite", "bslite-layerwise", "torch-nhwc", "inductor")
OPS = 3  # layers of one block
CHECKED = 2  # images compared with float64; the rest by being the same bits layer by layer


class Stack(Net):
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
        n, c, h, w = shape
        # Channels-last memory for every rival: what each of them likes best.
        x = rng.standard_normal((n, h, w, c), np.float32).transpose(0, 3, 1, 2)
        module = torch.nn.Sequential(*layers).eval()
        super().__init__(f"stack of {depth}", module, x, checked=CHECKED)

    @property
    def spec(self) -> ModelSpec:
        """A new ModelSpec, with no plans made yet."""
        graph = GraphBuilder(self.name)
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


@dataclass
class Result(Times):
    """One stack at one batch size and number of threads; seconds, rivals by name."""

    depth: int
    batch: int
    threads: int
    op_bytes: int
    memory: dict[str, int] = field(default_factory=dict)  # bytes between the layers, bslite's


def compare(stack: Stack, threads: int, rivals: list[str], rounds: int) -> Result:
    """Check that all give the same answer, then time those that do, in turns."""
    result = Result(stack.depth, stack.shape[0], threads, stack.op_bytes)
    calls: dict[str, Callable[[], Any]] = {}
    bits: dict[str, Array] = {}
    for name in rivals:
        try:
            engine: Any = ENGINES[name](stack, threads)
            answer = engine.answer(engine())
        except Unavailable as e:
            result.failures[name] = str(e)
            continue
        if wrong := stack.wrong(answer):
            result.failures[name] = wrong
            continue
        calls[name] = engine
        if engine.ours:
            bits[name] = answer
            result.memory[name] = between_layers(engine.spec, engine.x, threads, engine.layerwise)
    if len(bits) == 2 and not np.array_equal(bits["bslite"], bits["bslite-layerwise"]):
        for name in bits:
            result.failures[name] = "wrong answer: depth-first and layerwise differ in their bits"
            del calls[name]
    bits.clear()
    result.rounds = interleaved(calls, rounds)
    result.seconds = medians(result.rounds)
    return result


def markdown(results: list[Result], lines: dict[int, roofline.Roofline], header: dict[str, Any]) -> str:
    """One table for each number of threads."""
    return document(
        *(_table([r for r in results if r.threads == threads], line) for threads, line in lines.items()),
        "Medians of interleaved rounds; ratios are medians of each round's ratio, their mean is geometric. "
        "`GB/s`: the bytes into and out of every op, were each taken on its own, over bslite's time; more "
        "than memory's is what depth-first execution saves. Its answer is row-major `[N, C, H, W]`: "
        "that costs it one transposing copy that torch, channels-last throughout, does not make.",
        failed(results, lambda r: f"{r.threads} thread(s), depth {r.depth}, batch {r.batch}"),
        where(header),
    )


def _table(results: list[Result], line: roofline.Roofline) -> str:
    names = [name for name in RIVALS if any(name in r.seconds for r in results)]
    head = ["depth", "batch", *(f"{name}, ms" for name in names)]
    head += ["layerwise / bslite", "best peer / bslite", "bslite, GB/s", "of memory's"]
    head += ["MB between layers", "layerwise"]
    pairs = [(r.ratio_to("bslite-layerwise"), r.ratio_to(r.best_peer)) for r in results]
    rows = []
    for r, both in zip(results, pairs, strict=True):
        row = [str(r.depth), str(r.batch), *(ms(r.seconds.get(name), 2) for name in names), *map(ratio, both)]
        rate = r.op_bytes / r.seconds["bslite"] if "bslite" in r.seconds else None
        row += ["-", "-"] if rate is None else [f"{rate / 1e9:.0f}", f"{rate / line.bandwidth:.1f} x"]
        rows.append(row + [megabytes(r.memory.get(name)) for name in ("bslite", "bslite-layerwise")])
    means = [ratio(geometric_mean(each)) for each in zip(*pairs, strict=True)]
    rows.append(["mean", "", *[""] * len(names), *means])
    threads = f"**{line.threads} thread(s)**, memory {line.bandwidth / 1e9:.1f} GB/s"
    return f"{threads}\n\n{table(head, rows, left=0)}"


def main(arguments: list[str] | None = None) -> int:
    """Run the experiment; exit code 1 if bslite has a wrong answer somewhere."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stacks", description=__doc__)
    parser.add_argument("--depth", nargs="+", type=int, default=[1, 2, 4, 8, 16, 40])
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 16, 64])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--image", nargs=3, type=int, default=[64, 56, 56], metavar=("C", "H", "W"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--peers", nargs="+", choices=RIVALS, default=RIVALS)
    output.add_options(parser)
    options = parser.parse_args(arguments)
    if "bslite" not in options.peers:
        parser.error("--peers: bslite must be among them")
    run = output.Run("stacks", options, as_dict, markdown, limits={})
    for threads in options.threads:
        run.limits[threads] = roofline.measure(threads)
        for depth in options.depth:
            for batch in options.batch:
                stack = Stack(depth, (batch, *options.image))
                found = compare(stack, threads, list(options.peers), options.rounds)
                each = ", ".join(f"{name} {ms(s, 2)} ms" for name, s in found.seconds.items())
                run.add(found, f"{threads} thread(s), depth {depth}, batch {batch}: {each}")
    run.finish()
    return int(any(ENGINES[name].ours for r in run.results for name in r.failures))


def as_dict(
    results: list[Result], lines: dict[int, roofline.Roofline], header: dict[str, Any]
) -> dict[str, Any]:
    """Everything, ready for JSON."""
    limits = {str(t): {**asdict(line), "bandwidth": line.bandwidth} for t, line in lines.items()}
    return {**header, "roofline": limits, "results": [asdict(r) for r in results]}


if __name__ == "__main__":
    sys.exit(main())
