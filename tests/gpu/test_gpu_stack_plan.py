"""Which layers share a launch on a GPU, and that it changes no bit of the answer."""

import pytest
from support.gpu_cases import check_spec_on_cuda
from support.layers import Model
from support.noise import noise

from bslite.explore.gpu import GpuMachine
from bslite.plan import Plan


class Chain(Model):
    """Layers one after the other, each of the value before it."""

    def __init__(self, *shape: int) -> None:
        super().__init__(*shape)
        self.channels, self.value = shape[1], self.x

    def then(self, op: str, *others: str, **attrs: object) -> str:
        self.value = self.add(op, self.value, *others, **attrs)
        return self.value

    def block(self) -> str:
        """What BrainSlug's stacks are made of."""
        self.then("max_pool2d", kernel=3, stride=1, padding=1)
        self.value = self.norm(self.value, self.channels)
        return self.then("relu")

    def depthwise(self, stride: int = 1) -> None:
        c = self.channels
        self.value = self.conv(self.value, c, c, 3, stride=stride, groups=c)


def stacks_of(plan: Plan) -> list[str]:
    return [step.variant.constants()["stages"] for step in plan.steps if step.kernel == "stack"]


def checked(model: Chain) -> list[str]:
    """The stacks of a model that gives the right answer."""
    spec = model.graph.build(model.value)
    check_spec_on_cuda(spec, *(noise(*given.example, seed=i) for i, given in enumerate(spec.inputs)))
    return stacks_of(model.plan(model.value))


def test_blocks_share_a_launch() -> None:
    model = Chain(1, 3, 7, 9)
    for _ in range(3):
        model.block()
    assert [s.count("max") for s in checked(model)] == [3]


def test_residual_from_outside() -> None:
    """A sum with what the stack itself began from, and one with another input."""
    model = Chain(2, 2, 6, 7)
    other = model.graph.input("other", (2, 2, 6, 7))
    start = model.then("relu")
    model.block()
    model.then("add", start)
    model.depthwise()
    model.then("mul", other)
    model.then("silu")
    (stages,) = checked(model)
    words = [word.partition(":")[0] for word in stages.split()]
    assert words == ["max", "affine", "relu", "with", "depthwise", "with", "silu"]


def test_a_number_per_channel_from_outside() -> None:
    model = Chain(1, 4, 5, 6)
    gate = model.graph.input("gate", (1, 4, 1, 1))
    model.block()
    model.then("mul", gate)
    assert checked(model)[0].endswith("with:mul")


def test_what_two_layers_read_is_in_memory() -> None:
    model = Chain(1, 2, 6, 6)
    model.block()
    fork = model.block()
    model.block()
    left = model.value
    model.value = fork
    model.depthwise()
    model.then("sub", left)
    assert len(checked(model)) == 3


def test_strides_and_averages() -> None:
    model = Chain(1, 3, 13, 11)
    model.depthwise(stride=2)
    model.then("relu6")
    model.then("avg_pool2d", kernel=3, stride=1, padding=1, count_include_pad=False)
    model.then("max_pool2d", kernel=2, stride=2, ceil_mode=True)
    model.value = model.norm(model.value, model.channels)
    assert len(checked(model)) == 1


def test_into_a_concat() -> None:
    """A stack's result is a slice of a wider image."""
    model = Chain(1, 3, 5, 6)
    model.block()
    first = model.block()
    model.value = "x"
    model.value = model.norm(model.value, model.channels)
    model.then("tanh")
    model.value = model.graph.add("concat", "join", first, model.value, axis=1)
    checked(model)


@pytest.mark.parametrize("batch", [1, 16, 128])
def test_deep_stacks_are_cut(batch: int) -> None:
    """Forty blocks: no launch holds more than registers do, none is a single block, and few are needed."""
    model = Chain(batch, 64, 56, 56)
    for _ in range(40):
        model.block()
    plan = model.plan(model.value)
    depths = [s.count("max") for s in stacks_of(plan)]
    assert sum(depths) == 40
    assert 2 <= min(depths) <= max(depths) <= 5
    assert len(plan.steps) == len(depths) + 2  # the caller's planes turned to pixels, and back
    assert all(cut.startswith(("1x", "2x")) for cut in (s.tile for s in plan.steps if s.kernel == "stack"))
    assert f"{len(plan.steps)} steps" in str(plan)


def test_slower_memory_is_worth_deeper_stacks() -> None:
    """The price, not a rule, says how deep."""
    model = Chain(128, 64, 56, 56)
    for _ in range(12):
        model.block()
    slow = model.plan(model.value, machine=GpuMachine(memory_bandwidth=1e12))
    assert len(stacks_of(slow)) < len(stacks_of(model.plan(model.value)))


def test_windows_without_code_are_pools_of_their_own() -> None:
    model = Chain(1, 2, 12, 12)
    model.then("max_pool2d", kernel=3, stride=1, dilation=2)
    model.value = model.norm(model.value, model.channels)
    model.then("max_pool2d", kernel=8, stride=1)
    plan = model.plan(model.value)
    assert [step.kernel for step in plan.steps if step.kernel in ("pool", "stack")] == ["pool", "pool"]


def test_layerwise_stacks_nothing() -> None:
    model = Chain(1, 2, 6, 6)
    model.block()
    plan = model.plan(model.value, layerwise=True)
    assert all(len(stages.split()) == 1 for stages in stacks_of(plan))
