"""Which layers share a launch on a GPU, and that it changes no bit of the answer."""

from collections.abc import Callable

import numpy as np
import pytest
from support.check import Array
from support.gpu_cases import check_spec_on_cuda
from support.noise import noise
from support.plans import gpu_plan_of

from bslite.explore.gpu import GpuMachine
from bslite.passes import simplify
from bslite.plan import Plan
from bslite.plan.cuda import build_plan
from bslite.spec import GraphBuilder, ModelSpec

Add = Callable[[GraphBuilder, str], str]


class Model:
    """Layers one after the other, with seeded parameters."""

    def __init__(self, *shape: int) -> None:
        self.graph, self.rng, self.count = GraphBuilder("stack"), np.random.default_rng(3), 0
        self.channels = shape[1]
        self.value = self.graph.input("x", shape)

    def name(self) -> str:
        self.count += 1
        return f"l{self.count}"

    def add(self, op: str, *others: str, params: dict[str, Array] | None = None, **attrs: object) -> str:
        """A layer of the running value."""
        name = self.name()
        keys = {role: f"{name}.{role}" for role in params or {}}
        self.graph.params.update({keys[role]: array for role, array in (params or {}).items()})
        self.value = self.graph.add(op, name, self.value, *others, params=keys, **attrs)
        return self.value

    def numbers(self, *shape: int, low: float = -1.0) -> Array:
        return np.asarray(self.rng.uniform(low, 1.2, shape), np.float32)

    def norm(self) -> str:
        c = self.channels
        params = {"weight": self.numbers(c), "bias": self.numbers(c), "running_mean": self.numbers(c)}
        return self.add("batch_norm", params={**params, "running_var": self.numbers(c, low=0.4)}, eps=1e-5)

    def block(self) -> str:
        """What BrainSlug's stacks are made of."""
        self.add("max_pool2d", kernel=3, stride=1, padding=1)
        self.norm()
        return self.add("relu")

    def depthwise(self, stride: int = 1) -> str:
        c = self.channels
        params = {"weight": self.numbers(c, 1, 3, 3), "bias": self.numbers(c)}
        return self.add("conv2d", params=params, stride=stride, padding=1, groups=c)

    def built(self) -> ModelSpec:
        return self.graph.build(self.value)


def stacks_of(plan: Plan) -> list[str]:
    return [step.variant.constants()["stages"] for step in plan.steps if step.kernel == "stack"]


def test_blocks_share_a_launch() -> None:
    model = Model(1, 3, 7, 9)
    for _ in range(3):
        model.block()
    spec = model.built()
    assert [s.count("max") for s in stacks_of(gpu_plan_of(spec, (1, 3, 7, 9)))] == [3]
    check_spec_on_cuda(spec, noise(1, 3, 7, 9))


def test_residual_from_outside() -> None:
    """A sum with what the stack itself began from, and one with another input."""
    model = Model(2, 2, 6, 7)
    other = model.graph.input("other", (2, 2, 6, 7))
    start = model.add("relu")
    model.block()
    model.add("add", start)
    model.depthwise()
    model.add("mul", other)
    model.add("silu")
    spec = model.built()
    (stages,) = stacks_of(gpu_plan_of(spec, (2, 2, 6, 7), (2, 2, 6, 7)))
    assert [word.partition(":")[0] for word in stages.split()] == [
        "max", "affine", "relu", "with", "depthwise", "with", "silu"
    ]  # fmt: skip
    check_spec_on_cuda(spec, noise(2, 2, 6, 7), noise(2, 2, 6, 7, seed=1))


def test_a_number_per_channel_from_outside() -> None:
    model = Model(1, 4, 5, 6)
    gate = model.graph.input("gate", (1, 4, 1, 1))
    model.block()
    model.add("mul", gate)
    spec = model.built()
    assert stacks_of(gpu_plan_of(spec, (1, 4, 5, 6), (1, 4, 1, 1)))[0].endswith("with:mul")
    check_spec_on_cuda(spec, noise(1, 4, 5, 6), noise(1, 4, 1, 1, seed=1))


def test_what_two_layers_read_is_in_memory() -> None:
    model = Model(1, 2, 6, 6)
    model.block()
    fork = model.block()
    model.block()
    left = model.value
    model.value = fork
    model.depthwise()
    model.add("sub", left)
    spec = model.built()
    assert len(stacks_of(gpu_plan_of(spec, (1, 2, 6, 6)))) == 3
    check_spec_on_cuda(spec, noise(1, 2, 6, 6))


def test_strides_and_averages() -> None:
    model = Model(1, 3, 13, 11)
    model.depthwise(stride=2)
    model.add("relu6")
    model.add("avg_pool2d", kernel=3, stride=1, padding=1, count_include_pad=False)
    model.add("max_pool2d", kernel=2, stride=2, ceil_mode=True)
    model.norm()
    spec = model.built()
    assert len(stacks_of(gpu_plan_of(spec, (1, 3, 13, 11)))) == 1
    check_spec_on_cuda(spec, noise(1, 3, 13, 11))


def test_into_a_concat() -> None:
    """A stack's result is a slice of a wider image."""
    model = Model(1, 3, 5, 6)
    model.block()
    first = model.block()
    model.value = "x"
    model.norm()
    model.add("tanh")
    model.value = model.graph.add("concat", "join", first, model.value, axis=1)
    check_spec_on_cuda(model.built(), noise(1, 3, 5, 6))


@pytest.mark.parametrize("batch", [1, 16, 128])
def test_deep_stacks_are_cut(batch: int) -> None:
    """Forty blocks: no launch holds more than registers do, none is a single block, and few are needed."""
    shape = (batch, 64, 56, 56)
    model = Model(*shape)
    for _ in range(40):
        model.block()
    plan = gpu_plan_of(model.built(), shape)
    depths = [s.count("max") for s in stacks_of(plan)]
    assert sum(depths) == 40
    assert 2 <= min(depths) <= max(depths) <= 5
    assert len(plan.steps) == len(depths) + 2  # the caller's planes turned to pixels, and back
    assert all(cut.startswith(("1x", "2x")) for cut in (s.tile for s in plan.steps if s.kernel == "stack"))
    assert f"{len(plan.steps)} steps" in str(plan)


def test_slower_memory_is_worth_deeper_stacks() -> None:
    """The price, not a rule, says how deep."""
    shape = (128, 64, 56, 56)
    model = Model(*shape)
    for _ in range(12):
        model.block()
    spec = model.built()
    fast = gpu_plan_of(spec, shape)
    slow = gpu_plan_of(spec, shape, machine=GpuMachine(memory_bandwidth=1e12))
    assert len(stacks_of(slow)) < len(stacks_of(fast))


def test_windows_without_code_are_pools_of_their_own() -> None:
    model = Model(1, 2, 12, 12)
    model.add("max_pool2d", kernel=3, stride=1, dilation=2)
    model.norm()
    model.add("max_pool2d", kernel=8, stride=1)
    plan = gpu_plan_of(model.built(), (1, 2, 12, 12))
    assert [step.kernel for step in plan.steps if step.kernel in ("pool", "stack")] == ["pool", "pool"]


def test_layerwise_stacks_nothing() -> None:
    model = Model(1, 2, 6, 6)
    model.block()
    spec = simplify(model.built())
    plan = build_plan(spec, [(1, 2, 6, 6)], GpuMachine(), layerwise=True)
    assert all(len(stages.split()) == 1 for stages in stacks_of(plan))
