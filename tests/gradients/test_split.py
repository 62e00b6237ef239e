"""Gradient models in two halves: the same bits, whatever is saved, and little of it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.check import Array
from support.graphs import network
from support.noise import noise

import bslite
from bslite.errors import SpecError
from bslite.gradients.cut import cheapest
from bslite.gradients.split import POLICIES, split
from bslite.spec import GraphBuilder, ModelSpec


def step(spec: ModelSpec, batch: int) -> tuple[ModelSpec, list[Array]]:
    """A training model and its weights."""
    opened = bslite.weights_as_inputs(spec, training=True)
    shapes = [(batch, *opened.inputs[0].example[1:]), *(i.example for i in opened.inputs[1:])]
    wrt = [i.name for i in opened.inputs[1:]]
    return bslite.gradient(opened, wrt, shapes, opened.labels[:1]), [spec.params[name] for name in wrt]


def small() -> ModelSpec:
    g = GraphBuilder("small")
    x = g.input("x", ("N", 3, 8, 9), (2, 3, 8, 9))
    g.params |= {
        "w": noise(6, 3, 3, 3),
        "v": noise(5, 6, 1, 1, seed=1),
        "s": noise(6, seed=2),
        "b": noise(6, seed=3),
    }
    g.params |= {"m": noise(6, seed=4), "var": np.abs(noise(6, seed=5)) + 1}
    y = g.add("conv2d", "conv", x, params={"weight": "w"}, padding=1)
    norm = {"weight": "s", "bias": "b", "running_mean": "m", "running_var": "var"}
    y = g.add("relu", "relu", g.add("batch_norm", "bn", y, params=norm))
    return g.build(g.add("max_pool2d", "pool", g.add("conv2d", "last", y, params={"weight": "v"}), kernel=2))


def run_halves(
    joint: ModelSpec, outputs: int, taken: dict[str, Array], policy: str, memory: int | None = None
) -> list[Array]:
    seeds = [i.name for i in joint.inputs if i.name.startswith("d/")]
    halves = split(joint, outputs, seeds, policy, memory)
    made = bslite.run(halves.forward, [taken[i.name] for i in halves.forward.inputs])
    made = made if isinstance(made, list) else [made]
    assert [v.shape for v in made[outputs:]] == [s.shape for s in halves.saved]
    saved = dict(zip((s.name for s in halves.saved), made[outputs:], strict=True))
    back = bslite.run(halves.backward, [{**taken, **saved}[i.name] for i in halves.backward.inputs])
    return [*made[:outputs], *(back if isinstance(back, list) else [back])]


@pytest.mark.parametrize("policy", POLICIES)
def test_halves_make_the_bits_of_the_whole(policy: str) -> None:
    joint, weights = step(small(), 3)
    given = [noise(*i.example, seed=k) for k, i in enumerate(joint.inputs)]
    given[1 : 1 + len(weights)] = weights
    taken = {i.name: x for i, x in zip(joint.inputs, given, strict=True)}
    whole = bslite.run(joint, given)
    halves = run_halves(joint, 2, taken, policy)
    assert len(whole) == len(halves)
    for label, a, b in zip(joint.labels, whole, halves, strict=True):
        assert a.tobytes() == b.tobytes(), label


def test_what_is_made_again_is_not_saved() -> None:
    """A batch norm and a relu are: of large values what the convolution makes is saved, and of windows which
    element was the largest.
    """
    joint, _ = step(small(), 3)
    seeds = [i.name for i in joint.inputs if i.name.startswith("d/")]
    cheap, all_of_it = (split(joint, 2, seeds, policy) for policy in POLICIES)
    large = {(s.value, s.dtype) for s in cheap.saved if s.bytes > 100}
    assert large == {("conv/conv2d_given", "float32"), ("d/pool/max_pool_places", "uint8")}
    assert cheap.saved_bytes < 0.6 * all_of_it.saved_bytes
    assert not all_of_it.remade or all("number" in name for name in all_of_it.remade)


def test_a_resnet_saves_half_of_what_torch_does() -> None:
    """torch's eager mode saves what convolutions, batch norms and relus in place make."""
    joint, _ = step(network("resnet18", size=64), 2)
    outputs = 1 + sum(label.startswith("stats/") for label in joint.labels)
    halves = split(joint, outputs, [i.name for i in joint.inputs if i.name.startswith("d/")])
    shapes = joint.infer_shapes([i.example for i in joint.inputs])
    convolved = sum(4 * np.prod(shapes[n.name]) for n in joint.nodes if n.op == "conv2d_given")
    assert halves.saved_bytes < 1.2 * convolved  # torch: twice as much


def test_what_does_not_fit_is_said() -> None:
    joint, _ = step(small(), 2)
    with pytest.raises(SpecError, match="policy 'most'"):
        split(joint, 1, [], "most")
    with pytest.raises(SpecError, match="has no input d/y"):
        split(joint, 1, ["d/y"])
    with pytest.raises(SpecError, match="depends on gradients"):
        split(joint, 4, ["d/pool"])


@settings(deadline=None, max_examples=80)
@given(st.data())
def test_no_cheaper_choice_would_do(data: st.DataObject) -> None:
    """Against all choices, on graphs of up to seven values."""
    count = data.draw(st.integers(2, 7))
    prices = {i: data.draw(st.integers(0, 9)) for i in range(count)}
    above = {
        i: data.draw(st.lists(st.integers(0, i - 1), min_size=1, max_size=3, unique=True))
        for i in range(1, count)
        if data.draw(st.booleans())
    }
    fixed = [i for i in range(count) if i not in above]
    needed = data.draw(st.sets(st.integers(0, count - 1), min_size=1))

    def enough(kept: set[int]) -> bool:
        return all(made(i, kept) for i in needed)

    def made(i: int, kept: set[int]) -> bool:
        return i in kept or (i in above and all(made(j, kept) for j in above[i]))

    choices = [{i for i in range(count) if bits >> i & 1} for bits in range(1 << count)]
    best = min(sum(prices[i] for i in kept) for kept in choices if enough(kept))
    found = cheapest(prices, above, fixed, needed)
    assert enough(found)
    assert sum(prices[i] for i in found) == best


def deep() -> ModelSpec:
    """Convolutions of unlike work."""
    g = GraphBuilder("deep")
    x = g.input("x", ("N", 4, 12, 12), (2, 4, 12, 12))
    for i, side in enumerate((1, 5, 1, 3)):
        g.params[f"w{i}"] = noise(4, 4, side, side, seed=i)
        x = g.add(
            "relu", f"relu{i}", g.add("conv2d", f"conv{i}", x, params={"weight": f"w{i}"}, padding=side // 2)
        )
    return g.build(x)


@pytest.mark.parametrize("share", [1.0, 0.8, 0.5, 0.25, 0.0])
def test_a_budget_is_kept_by_making_again_what_is_cheap(share: float) -> None:
    joint, weights = step(deep(), 3)
    given = [noise(*i.example, seed=k) for k, i in enumerate(joint.inputs)]
    given[1 : 1 + len(weights)] = weights
    taken = {i.name: x for i, x in zip(joint.inputs, given, strict=True)}
    seeds = [i.name for i in joint.inputs if i.name.startswith("d/")]
    free = split(joint, 1, seeds)
    budget = int(share * free.saved_bytes)
    halves = split(joint, 1, seeds, memory=budget)
    assert halves.saved_bytes <= budget
    again = {name for name in halves.remade if name.startswith("conv")}
    if share == 0.8:
        assert {name[:5] for name in again} <= {"conv0", "conv2"}  # of one pixel, not of 25 or 9
        assert again
    assert (share < 1) == bool(again)
    for one, other in zip(
        bslite.run(joint, given), run_halves(joint, 1, taken, "price", budget), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_a_budget_below_zero_is_an_error() -> None:
    joint, _ = step(small(), 2)
    with pytest.raises(SpecError, match="cannot take -1 bytes"):
        split(joint, 2, [i.name for i in joint.inputs if i.name.startswith("d/")], memory=-1)
