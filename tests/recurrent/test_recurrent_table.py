"""Recurrent modules over a table of 320 configurations, generated and seeded; three-way, without exports.

Models come from the modules' state_dicts, so this is also the test of `bslite.from_state_dict` for them. The
truth is torch's module in float64; peepholes and the other reset convention, which torch's modules lack, are
judged by `torch_recurrent`.
"""

import itertools
import random
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.check import assert_three_way
from support.graphs import one_op
from support.torch_recurrent import reset_before, with_peepholes
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import bslite
from bslite import ModelSpec, WeightsError, reference

pytestmark = [pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")]
MODULES: dict[str, tuple[str, dict[str, Any]]] = {
    "lstm": ("LSTM", {}), "gru": ("GRU", {}), "rnn_tanh": ("RNN", {}),
    "rnn_relu": ("RNN", {"nonlinearity": "relu"}),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    """For torch: its tensors are small here, and its threads and the engine's share the cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@dataclass(frozen=True)
class Config:
    """One configuration; ``projected`` 0: no projection."""

    kind: str
    hidden: int
    inputs: int
    steps: int
    batch: int
    layers: int = 1
    both: bool = False
    biased: bool = True
    projected: int = 0
    state: bool = False
    lengths: bool = False
    batch_first: bool = False

    def __str__(self) -> str:
        flags = [f for f in ("both", "state", "lengths", "batch_first") if getattr(self, f)]
        sizes = f"H{self.hidden} I{self.inputs} T{self.steps} N{self.batch} L{self.layers}"
        p = f" P{self.projected}" if self.projected else ""
        return " ".join([self.kind, sizes + p, *flags, *([] if self.biased else ["no bias"])])


#: Sizes around 8 and 16 lanes; one; and a few that need several blocks, parts of sums and register tiles.
HIDDEN, INPUTS, STEPS, BATCH = (
    (1, 7, 8, 9, 15, 16, 17, 33, 48),
    (1, 3, 16, 19, 40),
    (1, 2, 3, 7),
    (1, 2, 5, 15, 29),
)
LARGE = [
    Config("lstm", 160, 64, 3, 1), Config("lstm", 257, 30, 2, 2, both=True), Config("gru", 1100, 8, 2, 1),
    Config("gru", 130, 1100, 3, 4, layers=2), Config("rnn_tanh", 1030, 20, 2, 3),
    Config("lstm", 96, 96, 40, 64),
    Config("lstm", 200, 50, 4, 3, projected=70, both=True),
    Config("gru", 64, 64, 200, 2, lengths=True),
]  # fmt: skip


def table() -> list[Config]:
    """Every combination of the switches for every kind, at sizes drawn for each."""
    rng, found = random.Random(0), list(LARGE)
    switches = itertools.product(MODULES, (1, 2, 3), *((False, True),) * 5, (False, True))
    for kind, layers, both, biased, state, lengths, first, projected in switches:
        if (projected and kind != "lstm") or (layers == 3 and both != state):
            continue
        hidden = rng.choice(HIDDEN)
        size = [rng.choice(choices) for choices in (INPUTS, STEPS, BATCH)]
        p = rng.randrange(1, hidden) if projected and hidden > 1 else 0
        found.append(Config(kind, hidden, *size, layers, both, biased, p, state, lengths, first))
    return sorted({*LARGE, *rng.sample(found, 320)}, key=astuple)


TABLE = table()
ENOUGH = 200  # elements of an output for its norm to mean something


def module_of(c: Config) -> Any:
    name, extra = MODULES[c.kind]
    torch.manual_seed(c.hidden + 100 * c.inputs)
    more = {"proj_size": c.projected} if c.projected else {}
    return getattr(nn, name)(
        c.inputs, c.hidden, num_layers=c.layers, bidirectional=c.both, bias=c.biased,
        batch_first=c.batch_first, **extra, **more,
    ).eval()  # fmt: skip


def inputs_of(c: Config, seed: int = 0) -> tuple[torch.Tensor, list[torch.Tensor], torch.Tensor | None]:
    """x, states, lengths."""
    rng = np.random.default_rng((c.hidden, c.batch, seed))
    x = rng.standard_normal((c.batch, c.steps, c.inputs) if c.batch_first else (c.steps, c.batch, c.inputs))
    rows, widths = c.layers * (1 + c.both), (c.projected or c.hidden, c.hidden)[: 1 + (c.kind == "lstm")]
    states = [rng.standard_normal((rows, c.batch, w)) for w in widths] if c.state else []
    lengths = torch.from_numpy(rng.integers(1, c.steps + 1, c.batch)) if c.lengths else None
    return torch.from_numpy(x).float(), [torch.from_numpy(s).float() for s in states], lengths


def by_torch(c: Config, module: Any, x: Any, states: list[Any], lengths: Any, dtype: Any) -> list[Any]:
    module = module.to(dtype)
    hx = [s.to(dtype) for s in states]
    given = None if not hx else tuple(hx) if c.kind == "lstm" else hx[0]
    with torch.no_grad():
        if lengths is None:
            y, last = module(x.to(dtype), given)
        else:
            packed = pack_padded_sequence(x.to(dtype), lengths, c.batch_first, enforce_sorted=False)
            y, last = module(packed, given)
            y, _ = pad_packed_sequence(y, c.batch_first, total_length=c.steps)
    module.float()
    return [t.numpy() for t in (y, *(last if isinstance(last, tuple) else (last,)))]


def check(c: Config) -> None:
    module = module_of(c)
    spec = bslite.from_state_dict(
        c.kind, module.state_dict(), batch_first=c.batch_first, initial_state=c.state, lengths=c.lengths
    )
    made: list[list[list[Any]]] = [[], [], []]
    # A norm of few numbers is a matter of luck: several inputs then, judged together.
    for seed in range(min(12, -(-ENOUGH // (c.batch * (c.projected or c.hidden))))):
        x, states, lengths = inputs_of(c, seed)
        given = [t.numpy() for t in (x, *states, *([] if lengths is None else [lengths]))]
        one = bslite.run(spec, given, threads=1)
        if seed == 0:
            two = bslite.run(spec, given, threads=2)
            assert [y.tobytes() for y in one] == [y.tobytes() for y in two], "other bits with one thread"
        peers, exact = (by_torch(c, module, x, states, lengths, d) for d in (torch.float32, torch.float64))
        for ours, want in zip(reference.run(spec, given, np.float64), exact, strict=True):
            np.testing.assert_allclose(ours, want, rtol=1e-11, atol=1e-12)
        for kept, new in zip(made, (one, peers, exact), strict=True):
            kept.append(new)
    for got, peer, want in zip(*(map(np.stack, zip(*runs, strict=True)) for runs in made), strict=True):
        assert_three_way(got, peer, want)


def test_the_table_is_as_large_and_as_mixed_as_it_says() -> None:
    assert len(TABLE) >= 300
    for name in ("kind", "hidden", "layers", "both", "biased", "state", "lengths", "batch_first"):
        assert len({getattr(c, name) for c in TABLE}) > 1
    assert sum(c.projected > 0 for c in TABLE) > 30


@pytest.mark.parametrize("part", range(20))
def test_table(part: int) -> None:
    wrong = []
    for c in TABLE[part::20]:
        try:
            check(c)
        except AssertionError as e:
            wrong.append(f"{c}: {e}")
    assert not wrong, "\n".join(wrong)


@settings(deadline=None, max_examples=30)
@given(
    st.builds(
        Config, st.sampled_from(list(MODULES)), st.integers(1, 70), st.integers(1, 40), st.integers(1, 9),
        st.integers(1, 20), st.integers(1, 3), st.booleans(), st.booleans(), st.just(0), st.booleans(),
        st.booleans(), st.booleans(),
    )
)  # fmt: skip
def test_any_configuration(c: Config) -> None:
    check(c)


def one_layer(op: str, c: Config, **attrs: Any) -> tuple[ModelSpec, dict[str, torch.Tensor]]:
    """A model of one node, for what torch's modules lack."""
    rng = np.random.default_rng(c.hidden)
    rows = (4 if op == "lstm" else 3) * c.hidden
    shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, c.inputs), "weight_hh": (rows, c.hidden)}
    if c.biased:
        shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
    if op == "lstm":
        shapes["peephole"] = (3 * c.hidden,)
    params = {
        r: rng.uniform(-1, 1, s).astype(np.float32) * np.float32(c.hidden**-0.5) for r, s in shapes.items()
    }
    inputs: list[Any] = [(c.steps, c.batch, c.inputs), *([(c.batch, c.hidden)] if c.state else [])]
    if c.lengths:
        inputs.append(np.ones(c.batch, np.int64))
    return one_op(op, *inputs, **params, **attrs), {r: torch.from_numpy(p) for r, p in params.items()}


@pytest.mark.parametrize("op", ["lstm", "gru"])
@pytest.mark.parametrize("hidden", HIDDEN)
def test_peepholes_and_the_reset_gate_before(op: str, hidden: int) -> None:
    switches = itertools.product((1, 5, 29), (True, False), *((False, True),) * 3)
    for i, (batch, biased, state, lengths, reverse) in enumerate(switches):
        if op == "lstm" and (state or lengths or reverse):
            continue
        c = Config(
            op, hidden, INPUTS[i % 5], STEPS[i % 4], batch, biased=biased, state=state, lengths=lengths
        )
        ends = {"reverse": reverse, "initial_state": state, "lengths": lengths}
        spec, params = one_layer(op, c, **ends, **({"reset_after": False} if op == "gru" else {}))
        x, states, found = inputs_of(c)
        given = [x, *(s[0] for s in states), *([] if found is None else [found])]
        judge = with_peepholes if op == "lstm" else reset_before
        full = {**dict.fromkeys(("bias_ih", "bias_hh"), torch.zeros(len(params["weight_ih"]))), **params}
        peer, exact = (
            judge(
                *(t.to(d) if t.is_floating_point() else t for t in given),
                **{r: p.to(d) for r, p in full.items()}, **ends,
            ).numpy()
            for d in (torch.float32, torch.float64)
        )  # fmt: skip
        got = bslite.run(spec, [t.numpy() for t in given], threads=2)
        assert_three_way(got, peer, exact)
        assert got.tobytes() == bslite.run(spec, [t.numpy() for t in given], threads=1).tobytes()


def weights(kind: str = "lstm", **changes: Any) -> dict[str, Any]:
    """A good state_dict, then ``changes``: None takes a key out."""
    found = dict(module_of(Config(kind, 8, 5, 1, 1, layers=2)).state_dict())
    found.update(changes)
    return {k: v for k, v in found.items() if v is not None}


WRONG: dict[str, list[tuple[dict[str, Any], str]]] = {
    "lstm": [
        (weights(weight_hh_l1=None), r"missing: 1\n    weight_hh_l1 \[32, 8\]"),
        (weights(bias_hh_l0=None, bias_ih_l1=None), "missing: 2"),
        (weights(weight_ih_l0=None), "missing weight_ih_l0, from which its sizes are read"),
        ({}, "missing weight_ih_l0, weight_hh_l0.*there is: nothing"),
        (weights(weight_ih_l1=torch.zeros(32, 9)), r"weight_ih_l1: got \[32, 9\], expected \[32, 8\]"),
        (weights(bias_hh_l1=torch.zeros(24)), r"bias_hh_l1: got \[24\], expected \[32\]"),
        (weights(extra=torch.zeros(2)), r"unexpected: 1\n    extra \[2\]"),
        (weights(bias_hh_l0=torch.zeros(32).double()), r"bias_hh_l0: got torch.float64, expected float32"),
        (weights("gru"), r"\[24, 5\] and weight_hh_l0 \[24, 8\].*3 gate\(s\) of 8 units are those of gru"),
        ({"weight_ih_l0": torch.zeros(5, 32), "weight_hh_l0": torch.zeros(8, 32)}, "look transposed"),
        (weights(weight_ih_l0=torch.zeros(30, 5)), r"weight_ih_l0 is \[30, 5\]"),
        (weights(weight_hh_l0=torch.zeros(32)), r"weight_hh_l0 is \[32\], expected a matrix"),
        (weights(weight_ih_l3=torch.zeros(32, 8)), r"missing: 7"),
    ],
    "gru": [(weights(), r"expected \[3\*H, I\] and \[3\*H, H\]; 4 gate\(s\) of 8 units are those of lstm")],
    "rnn_tanh": [(weights(), r"4 gate\(s\) of 8 units are those of lstm")],
}


@pytest.mark.parametrize(("kind", "given", "text"), [(kind, *w) for kind, ws in WRONG.items() for w in ws])
def test_weights_that_do_not_fit_are_named(kind: str, given: dict[str, Any], text: str) -> None:
    with pytest.raises(WeightsError, match=f"(?s)the weights do not fit {kind}.*{text}"):
        bslite.from_state_dict(kind, given)


def test_other_orders_of_the_gates() -> None:
    c = Config("lstm", 9, 5, 4, 2)
    module, (x, _, _) = module_of(c), inputs_of(c)
    i, f, g, o = (range(9 * k, 9 * k + 9) for k in range(4))
    onnx = {k: v[[*i, *o, *f, *g]] for k, v in module.state_dict().items()}
    want = bslite.run(bslite.from_state_dict("lstm", module.state_dict()), x)
    got = bslite.run(bslite.from_state_dict("lstm", onnx, gates="iofg"), x)
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    wrong = bslite.run(bslite.from_state_dict("lstm", onnx), x)
    assert not torch.allclose(wrong[0], want[0], atol=1e-3)
    with pytest.raises(
        WeightsError, match="gates 'ifco' is not an order of lstm's i, f, g, o; torch's is 'ifgo'"
    ):
        bslite.from_state_dict("lstm", onnx, gates="ifco")


def test_options_of_the_other_family_are_refused() -> None:
    with pytest.raises(WeightsError, match="lstm has no num_classes"):
        bslite.from_state_dict("lstm", weights(), num_classes=3)
    with pytest.raises(WeightsError, match="alexnet has no batch_first, initial_state"):
        bslite.from_state_dict("alexnet", {}, batch_first=True)


def test_one_module_among_others() -> None:
    module = nn.ModuleDict({"enc": nn.GRU(5, 8), "out": nn.Linear(8, 2)})
    x = torch.randn(3, 2, 5)
    y, h = bslite.run(bslite.from_state_dict("gru", module.state_dict(), prefix="enc."), x)
    with torch.no_grad():
        want = module["enc"](x)
    torch.testing.assert_close(y, want[0])
    torch.testing.assert_close(h, want[1])
