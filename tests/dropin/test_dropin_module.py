"""A module made by `bslite.optimize` is the one it was made from, but for its speed."""

import contextvars
import copy
import inspect
import io
import pickle
import warnings
from typing import Any

import pytest
from support.dropin_models import (
    F,
    Nested,
    Net,
    Output,
    Stack,
    WithOutput,
    agree,
    by_bslite,
    images,
    near,
    nn,
    torch,
    wrapped,
)
from support.torch_modules import Fn

import bslite


def test_it_gives_the_same_answers_for_any_batch(net: Any, fast: Any) -> None:
    for batch in (2, 1, 5, 1, 2):
        agree(fast, net, images(batch))
    by_bslite(fast)
    assert len(bslite.report(fast).kinds) == 2  # a batch of one is traced for itself


def test_example_inputs_specialise_it_at_once() -> None:
    fast = wrapped(Net(), example_inputs=images())
    assert [k.shapes for k in bslite.report(fast).kinds] == [(((2, 3, 9, 9),),)]


def test_it_is_an_instance_of_the_same_class(net: Any, fast: Any) -> None:
    assert isinstance(fast, Net)
    assert type(fast).__name__ == "Net"
    assert repr(fast) == repr(net)
    assert inspect.signature(fast.forward) == inspect.signature(net.forward)
    assert type(wrapped(Net())) is type(fast)


def test_parameters_and_attributes_are_the_originals(net: Any, fast: Any) -> None:
    assert list(fast.state_dict()) == list(net.state_dict())
    assert all(a is b for (_, a), (_, b) in zip(fast.named_parameters(), net.named_parameters(), strict=True))
    assert [k for k, _ in fast.named_modules()] == [k for k, _ in net.named_modules()]
    assert fast.label == "mine"
    assert fast.conv1 is net.conv1
    fast.label = "yours"
    assert net.label == "yours"
    with pytest.raises(AttributeError, match="nothing_such"):
        _ = fast.nothing_such


def test_modes_and_conversions_reach_the_original() -> None:
    net = Net()
    fast = bslite.optimize(net, tune=False)
    assert fast.train() is fast
    assert net.training
    assert net.bn1.training
    fast.eval()
    assert not net.bn1.training
    fast.double()
    assert net.fc.weight.dtype == torch.float64
    fast.float()
    agree(fast, net, images())
    by_bslite(fast)
    assert fast.to("cpu") is fast


def test_hooks_on_the_outside_run_once_per_call(net: Any, fast: Any) -> None:
    calls: list[str] = []
    fast.register_forward_pre_hook(lambda m, args: calls.append("before"))
    fast.register_forward_hook(lambda m, args, out: calls.append("after") or out * 2)
    x = images()
    with torch.no_grad():
        near(fast(x), 2 * net.forward(x))
        fast(x)
    assert calls == ["before", "after"] * 2
    by_bslite(fast)


def test_a_hook_on_a_layer_inside_keeps_being_called(net: Any) -> None:
    fast = bslite.optimize(net, tune=False)
    agree(fast, net, images())
    seen: list[Any] = []
    handle = net.conv1.register_forward_hook(lambda m, args, out: seen.append(out))
    with (
        torch.no_grad(),
        pytest.warns(UserWarning, match=r"forward hooks on layers inside the model \(conv1\)"),
    ):
        fast(images())
    assert len(seen) == 1
    handle.remove()
    before = sum(bslite.report(fast).calls_in_torch.values())
    agree(fast, net, images())
    by_bslite(fast, before)


def test_a_hook_that_notes_what_the_call_returns_is_traced(net: Any) -> None:
    notes: contextvars.ContextVar[list[Any]] = contextvars.ContextVar("notes")

    class Noting(Net):
        def forward(self, x: Any) -> Any:
            token = notes.set([])
            try:
                return super().forward(x), tuple(notes.get())
            finally:
                notes.reset(token)

    def note(module: Any, args: Any, out: Any) -> None:
        notes.get().append(out)

    note.__module__ = "transformers.utils.output_capturing"
    net = Noting().eval()
    net.conv1.register_forward_hook(note)
    fast = wrapped(net)
    for batch in (2, 3):
        _, (inner,) = agree(fast, net, images(batch))
        assert type(inner) is torch.Tensor
    by_bslite(fast)


def through_a_file(fast: Any) -> Any:
    torch.save(fast, file := io.BytesIO())
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize(
    "how", [copy.deepcopy, lambda fast: pickle.loads(pickle.dumps(fast)), through_a_file, copy.copy]
)
def test_copies_are_drop_ins_of_their_own(net: Any, fast: Any, how: Any) -> None:
    x = images()
    want = agree(fast, net, x)
    twin = how(fast)
    assert type(twin) is type(fast)
    near(agree(twin, net, x), want)
    by_bslite(twin)
    if how is copy.copy:
        return
    with torch.no_grad():
        twin.fc.weight.mul_(2)
    assert not torch.equal(twin.fc.weight, net.fc.weight)
    near(agree(fast, net, x), want)


def test_a_deepcopied_parent_holds_a_copied_drop_in() -> None:
    parent = nn.Sequential(wrapped(Net()), nn.Softmax(1)).eval()
    twin = copy.deepcopy(parent)
    assert twin[0] is not parent[0]
    agree(twin, parent, images())
    by_bslite(twin[0])


def test_keyword_arguments_and_nested_results() -> None:
    net = Nested().eval()
    fast = wrapped(net)
    x, y = torch.randn(3, 6), {"more": [torch.randn(3, 6)]}
    agree(fast, net, x)
    agree(fast, net, x=x, scale=2.0)
    agree(fast, net, x, scale=3.0)
    agree(fast, net, x, y, pair=True)
    got = agree(fast, net, x, y=y, pair=True)
    assert list(got) == ["z", "rest", "list"]
    assert got["rest"][1:] == (None, 3, "text")
    by_bslite(fast)


def test_a_dataclass_as_the_result() -> None:
    net = WithOutput().eval()
    fast = wrapped(net)
    x = torch.randn(3, 6)
    with torch.no_grad():
        for batch in (x, 2 * x):
            got, want = fast(batch), net(batch)
            assert isinstance(got, Output)
            assert got.name == "out"
            near(got.logits, want.logits)
            near(got.hidden[1], want.hidden[1])
    by_bslite(fast)


def test_a_size_among_the_results_follows_the_batch() -> None:
    net = Fn(lambda x: (x.relu(), x.shape[0]))
    fast = wrapped(net)
    for batch in (2, 7):
        assert agree(fast, net, torch.randn(batch, 3))[1] == batch


def test_results_are_fresh_memory() -> None:
    """Nothing returned is written to by a later call, or shares memory with the input."""
    net = Nested().eval()
    fast = wrapped(net)
    x = torch.randn(3, 6)
    with torch.no_grad():
        first = fast(x, pair=True)
        kept = [t.clone() for t in (first["z"], first["rest"][0], first["list"][0])]
        second = fast(x + 1, pair=True)
        first["z"].add_(100)
        third = fast(x, pair=True)
    for made, was in zip((first["rest"][0], first["list"][0]), kept[1:], strict=True):
        assert torch.equal(made, was)
    assert torch.equal(third["z"], kept[0])
    pointers = [
        t.untyped_storage().data_ptr()
        for r in (first, second, third)
        for t in (r["z"], r["rest"][0], r["list"][0])
    ]
    assert len({*pointers, x.untyped_storage().data_ptr()}) == 10


def test_an_input_handed_through_is_the_input() -> None:
    x = torch.randn(2, 3)
    with torch.no_grad():
        assert wrapped(Fn(lambda x: (x, x.relu())))(x)[0] is x


def test_any_strides_of_the_input(net: Any, fast: Any) -> None:
    x = images(4, 10)
    for view in (
        x.to(memory_format=torch.channels_last),
        x[:, :, ::2, ::2],
        x.flip(3),
        x.transpose(2, 3),
        x[:1].expand(4, -1, -1, -1),
        x[1:3],
    ):
        agree(fast, net, view)
    by_bslite(fast)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.int32, torch.bool])
def test_any_strides_of_any_dtype(dtype: Any) -> None:
    """Of arguments, and of what an operation in torch hands on."""

    class Moves(nn.Module):
        def forward(self, x: Any) -> Any:
            if dtype != torch.float32:
                return x.flip(0), x.float() + 1
            places = x.nonzero()  # of torch, transposed in memory
            return places.flip(1), places + 1

    net, x = Moves().eval(), (torch.arange(60) % 7 - 2).reshape(6, 10).to(dtype)
    fast = bslite.optimize(net, tune=False, fallback="silent")
    with torch.no_grad():
        for given in (x, x.T, x[:, ::3], x[::2].T, x[:, :1].expand(6, 5), x.T.clone()):
            for got, want in zip(fast(given), Moves.forward(net, given), strict=True):
                assert torch.equal(got, want)


@pytest.mark.parametrize("number", [torch.tensor(3), torch.tensor(3, dtype=torch.int32), torch.tensor(True)])
def test_a_single_number_as_an_argument(number: Any) -> None:
    """A time step, a switch."""

    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(5, 8)

        def forward(self, x: Any, step: Any) -> Any:
            return x + self.table(step.long()), step

    net, x = Steps().eval(), torch.randn(3, 8)
    fast = wrapped(net)
    agree(fast, net, x, number)
    by_bslite(fast)


def test_optimizing_twice_wraps_the_original(net: Any) -> None:
    again = wrapped(wrapped(net))
    agree(again, net, images())
    assert type(again).__mro__.count(type(again)) == 1
    assert type(again).__bases__ == (Net,)


def test_sequential_and_functional_use_of_it() -> None:
    net = nn.Sequential(nn.Linear(12, 4), nn.ReLU()).eval()
    fast = wrapped(net)
    agree(fast, net, torch.randn(3, 12))
    assert len(fast) == 2
    assert fast[0] is net[0]
    weights = {k: v * 2 for k, v in net.state_dict().items()}
    x = torch.randn(3, 12)
    with torch.no_grad():
        want = F.relu(F.linear(x, weights["0.weight"], weights["0.bias"]))
        near(torch.func.functional_call(fast, weights, x), want)


def test_options_are_checked() -> None:
    with pytest.raises(bslite.InputError, match=r"takes a torch\.nn\.Module, got function"):
        bslite.optimize(images)
    with pytest.raises(bslite.InputError, match="fallback 'never' is not one of 'warn', 'error', 'silent'"):
        bslite.optimize(Net(), fallback="never")
    with pytest.raises(bslite.EngineError, match="threads"):
        bslite.optimize(Net(), threads=0)
    with pytest.raises(bslite.InputError, match=r"made by bslite\.optimize, got Net"):
        bslite.report(Net())


def test_a_scripted_module_is_returned_as_it_is() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is deprecated
        scripted = torch.jit.trace(nn.ReLU().eval(), torch.randn(2))
    with pytest.warns(UserWarning, match="returned as it is"):
        assert bslite.optimize(scripted) is scripted


def test_an_instance_with_a_forward_of_its_own() -> None:
    net = Stack().eval()
    net.forward = lambda x: x + 1  # type: ignore[method-assign]
    fast = wrapped(net)
    x = torch.randn(2, 12)
    assert torch.equal(fast(x), x + 1)


def test_a_graph_module(net: Any) -> None:
    """torch.export goes through its graph, which says nothing of the structure of results."""
    graph = torch.fx.symbolic_trace(net)
    fast = wrapped(graph)
    for batch in (2, 3, 1):
        agree(fast, net, images(batch))
    by_bslite(fast)


class Lazy:
    """A result that is computed when it is asked for, by a layer."""

    def __init__(self, layer: nn.Module, x: torch.Tensor) -> None:
        self.layer, self.x = layer, x


@pytest.mark.parametrize("made", [Lazy, lambda layer, x: {"layer": layer, "x": x}])
def test_a_layer_in_a_result_is_the_modules_own(made: Any) -> None:
    class Net(nn.Sequential):
        def forward(self, x: torch.Tensor) -> Any:
            return made(self[1], self[0](x))

    net = Net(nn.Linear(4, 4), nn.Linear(4, 2)).eval()
    fast = bslite.optimize(net, tune=False, fallback="silent")
    with torch.no_grad():
        result = fast(torch.randn(3, 4))
    assert (result["layer"] if isinstance(result, dict) else result.layer) is net[1]
