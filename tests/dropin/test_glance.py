"""What a glance at the memory of dicts and tensors sees, and calls of modules with and without one."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import nn

import bslite
from bslite.dropin.kept import digest_of
from bslite.dropin.runner import runner_of
from bslite.dropin.watch import LEAST, Watch
from bslite.engines.cpu import glance
from bslite.engines.cpu.glance import Glance

FOUND = glance.tag_of_dicts() is not None
needs_tags = pytest.mark.skipif(not FOUND, reason="dicts have no number of changes")


def test_the_words_are_found() -> None:
    assert FOUND or sys.version_info >= (3, 13)
    assert glance.places_of_tensors() is not None


def net() -> nn.Sequential:
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).eval()
    made.note = [1, [2]]
    return made


def glance_at(module: nn.Module) -> Glance:
    dicts = [
        d
        for m in module.modules()
        for d in (vars(m), m._parameters, m._buffers, m._modules, m._forward_hooks)
    ]
    return Glance(dicts, [*module.parameters(), *module.buffers()])


def _store_often(m: nn.Sequential) -> None:
    for i in range(1000):
        m[2].inplace = i


CHANGES: dict[str, Callable[[nn.Sequential], object]] = {
    "an attribute": lambda m: setattr(m[1], "eps", 1e-3),
    "an attribute that is set often": _store_often,
    "another attribute": lambda m: setattr(m, "more", 1),
    "one gone": lambda m: delattr(m, "note"),
    "a hook": lambda m: m[0].register_forward_hook(lambda *_: None),
    "a layer": lambda m: m.append(nn.ReLU()),
    "a parameter": lambda m: setattr(m[0], "weight", nn.Parameter(torch.ones(8, 4))),
    "a buffer": lambda m: setattr(m[1], "running_mean", torch.ones(8)),
    "the state": lambda m: m.load_state_dict(net().state_dict(), assign=True),
    "values": lambda m: m[0].weight.detach().add_(1),
    "values by an index": lambda m: m[0].weight.detach().__setitem__((5, 2), 0.0),
    "the data": lambda m: setattr(m[0].weight, "data", m[0].weight.data.clone()),
    "the place in a storage": lambda m: setattr(m[0].bias, "data", m[0].weight.data.reshape(-1)[8:16]),
    "the storage": lambda m: m[1].running_var.set_(torch.ones(8)),
    "a storage's memory": lambda m: m[1].running_var.untyped_storage().resize_(1 << 16),
    "two tensors": lambda m: torch.utils.swap_tensors(m[1].running_var, torch.ones(8)),
}


#: Changes that no module runs after, or that torch does not make while others hold the tensor.
ALONE = ("an attribute that is set often", "two tensors", "a storage's memory")


@needs_tags
@pytest.mark.parametrize("change", CHANGES)
def test_a_glance_sees(change: str) -> None:
    module = net()
    module[0].bias.data = module[0].weight.data.reshape(-1)[:8]
    seen = glance_at(module)
    module(torch.ones(2, 4)), dict(vars(module[1])), [p.data_ptr() for p in module.parameters()]
    assert seen.same()
    CHANGES[change](module)
    assert not seen.same()


@needs_tags
def test_tensors_of_inference_have_no_counter() -> None:
    with torch.inference_mode():
        module = net()
    seen = glance_at(module)
    assert seen.same()
    with torch.inference_mode():
        module[1].running_mean = torch.ones(8)
    assert not seen.same()


@needs_tags
def test_words_that_torch_does_not_confirm_make_no_glance(monkeypatch: pytest.MonkeyPatch) -> None:
    found = glance.places_of_tensors()
    assert found is not None
    monkeypatch.setattr(glance, "places_of_tensors", lambda: found._replace(memory=found.memory + 8))
    other = torch.frombuffer(bytearray(64), dtype=torch.float32)  # whose storage says there what to free
    with pytest.raises(LookupError, match="another form"):
        Glance([], [other])
    monkeypatch.setattr(glance, "places_of_tensors", lambda: None)
    with pytest.raises(LookupError, match="another form"):
        Glance([], [])


@pytest.mark.parametrize("tags", [True, False], ids=["glances", "asks"])
@pytest.mark.parametrize("change", [c for c in CHANGES if c not in ALONE])
def test_the_next_call_follows(change: str, tags: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not tags:
        monkeypatch.setattr(glance, "tag_of_dicts", lambda: None)
    module, x = net(), torch.randn(5, 4)
    fast = bslite.optimize(module, tune=False, fallback="silent")
    with torch.no_grad():
        for _ in range(3):
            fast(x)
        watch = runner_of(fast)._state.watch  # type: ignore[union-attr]
        assert (watch._glance is not None) == (tags and FOUND)
        CHANGES[change](module)
        torch.testing.assert_close(fast(x), module(x), rtol=1e-5, atol=1e-6)


def test_containers_are_compared_by_what_is_in_them() -> None:
    module = net()
    watch = Watch(module)
    assert not watch.changed()
    module.note[1].append(3)  # type: ignore[union-attr, operator]
    assert watch.changed()


@dataclass
class Held:
    n: float


@pytest.mark.parametrize("kind", ["list", "object", "set"])
def test_what_takes_an_equal_ones_place_is_compared_from_then_on(kind: str) -> None:
    make = {"list": lambda: [1.0, 2.0], "object": lambda: Held(1.0), "set": lambda: {1.0}}[kind]
    module = net()
    module.held = make()
    watch = Watch(module)
    for _ in range(LEAST):
        assert not watch.changed()
    module.held = given = make()
    for _ in range(2):
        assert not watch.changed()
    if isinstance(given, Held):
        given.n = 5.0
    elif isinstance(given, list):
        given[0] = 5.0
    else:
        given.add(5.0)
    assert watch.changed()


@needs_tags
@pytest.mark.parametrize("first", [True, False], ids=["at first", "again"])
def test_a_change_while_it_is_made_is_seen(first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    module, made = net(), []

    class Slow(Glance):
        def __init__(self, *args: object) -> None:
            if made:
                module[1].eps = 0.5  # by another thread
            super().__init__(*args)  # type: ignore[arg-type]

    monkeypatch.setattr("bslite.dropin.watch.Glance", Slow)
    if first:
        made.append(1)
        assert Watch(module).changed()
        return
    watch = Watch(module)
    for _ in range(LEAST):
        assert not watch.changed()
    made.append(1)
    module.note = [1, [2]]
    assert watch.changed()


def test_tensors_without_storage_make_none() -> None:
    sparse = torch.eye(3).to_sparse()
    with pytest.raises(LookupError):
        Glance([], [sparse])


@pytest.mark.parametrize("size", [16, 64, 4096])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "write", [torch.Tensor.neg_, lambda w: w.mul_(2), lambda w: w.view(-1, 2)[:, 1].neg_()],
    ids=["signs", "doubled", "every other sign"],
)  # fmt: skip
def test_the_digest_sees_writes_of_one_bit_in_each(
    write: Callable[[torch.Tensor], object], dtype: torch.dtype, size: int
) -> None:
    for seed in range(50):
        weight = torch.randn(size, dtype=dtype, generator=torch.Generator().manual_seed(seed))
        digest = digest_of([weight])
        before = digest()
        write(weight)
        assert digest() != before


@needs_tags
def test_nothing_is_asked_twice_unless_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, asked = Watch(net()), []
    before = Watch.structure_changed
    monkeypatch.setattr(Watch, "structure_changed", lambda self: asked.append(1) or before(self))
    for _ in range(LEAST):
        assert not watch.changed()
    assert not asked
    watch._attributes[0]["note"] = [1, [2]]  # an equal one
    for _ in range(LEAST):
        assert not watch.changed()
    assert len(asked) == 2  # and once more after the next glance was made


@needs_tags
def test_a_glance_that_serves_few_calls_is_given_up() -> None:
    module = net()
    watch = Watch(module)
    for _ in range(3):
        module.note = [1, [2]]
        assert not watch.changed()
    assert watch._glance is None
    module.note = [1, [3]]
    assert watch.changed()
