"""Mixtures of experts: products by groups of rows, counts of them, and what transformers make of these."""

import contextlib
import copy
import importlib
import importlib.util
from typing import Any

import numpy as np
import pytest
from support.check import assert_three_way
from support.torch_modules import Made, nn, torch
from support.torchvision_models import import_models

import bslite
from bslite import UnsupportedError, from_torch

EXPERTS, CHOSEN = 5, 2


def _grouped() -> Any:
    """transformers' operation; without that package, one of the same name."""
    with contextlib.suppress(ImportError):
        importlib.import_module("transformers.integrations.moe")
        return torch.ops.transformers.grouped_mm_fallback

    def grouped(x: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
        bounds = [0, *offs.tolist()]
        return torch.cat([x[a:b] @ w for a, b, w in zip(bounds, bounds[1:], weight, strict=False)])

    made = torch.library.custom_op("transformers::grouped_mm_fallback", grouped, mutates_args=())
    made.register_fake(lambda x, weight, offs: x.new_empty(x.shape[0], weight.shape[2]))
    return torch.ops.transformers.grouped_mm_fallback


GROUPED = _grouped()


class Experts(nn.Module):
    """Two layers of each of a few experts, with the rows that a gate sends them, in their order."""

    def __init__(self, width: int = 24, hidden: int = 40, product: Any = GROUPED) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.product = product
        self.gate = nn.Linear(width, EXPERTS)
        self.up = nn.Parameter(torch.randn(EXPERTS, hidden, width) / width**0.5)
        self.down = nn.Parameter(torch.randn(EXPERTS, width, hidden) / hidden**0.5)

    def forward(self, x: Any) -> Any:
        rows = x.reshape(-1, x.shape[-1])
        scores = nn.functional.linear(rows.float(), self.gate.weight.float(), self.gate.bias.float())
        weights, chosen = scores.softmax(-1).topk(CHOSEN)
        experts, order = chosen.reshape(-1).sort()
        ends = torch.histc(experts.float(), EXPERTS, 0, EXPERTS - 1).cumsum(0, dtype=torch.int32)
        sent = rows[order // CHOSEN]
        made = self.product(sent, self.up.transpose(-2, -1), ends).relu()
        made = self.product(made, self.down.transpose(-2, -1), ends)
        made = made * weights.reshape(-1)[order][:, None].to(made.dtype)
        return torch.zeros_like(rows).index_add(0, order // CHOSEN, made).view_as(x)


def exact(net: Experts, x: Any) -> Any:
    """The same in float64: each expert on all rows, weighed."""
    x, weights = x.double(), net.double()
    rows = x.reshape(-1, x.shape[-1])
    share, chosen = weights.gate(rows).softmax(-1).topk(CHOSEN)
    gate = torch.zeros(len(rows), EXPERTS, dtype=torch.float64).scatter(1, chosen, share)
    each = torch.einsum("eti,eoi->eto", torch.einsum("ti,ehi->eth", rows, weights.up).relu(), weights.down)
    return torch.einsum("eto,te->to", each, gate).view_as(x)


def test_experts_of_bfloat16() -> None:
    """Torch's own product of groups; the gate is of float32."""
    product = torch._grouped_mm if hasattr(torch, "_grouped_mm") else torch.nn.functional.grouped_mm
    net = Experts(product=product).eval().bfloat16()
    fast = bslite.optimize(net, tune=False, fallback="error")
    for shape in ((2, 7, 24), (1, 7, 24), (5, 3, 24)):
        x = torch.randn(shape).bfloat16()
        with torch.no_grad():
            truth, peer, got = exact(copy.deepcopy(net), x), net(x), fast(x)
        assert got.dtype is torch.bfloat16
        assert_three_way(got.float().numpy(), peer.float().numpy(), truth.numpy(), factor=1.5)
    assert not bslite.report(fast).calls_in_torch


def test_experts_at_any_size() -> None:
    """The batch is a number to the sort, so the model is one that fixes it call by call."""
    net = Experts().eval()
    spec = from_torch(net, torch.randn(2, 7, 24))
    assert [n.op for n in spec.nodes].count("grouped_linear") == 2
    for shape in ((2, 7, 24), (1, 7, 24), (5, 7, 24)):
        x = torch.randn(shape)
        with torch.no_grad():
            truth, peer = exact(Experts(), x).numpy(), net(x).numpy()
        for backend in ("reference", "cpu"):
            assert_three_way(bslite.run(spec, x.numpy(), backend=backend), peer, truth)


def test_a_weight_that_a_layer_holds_turned_is_not_copied() -> None:
    net = Experts().eval()
    spec = from_torch(net, torch.randn(2, 7, 24))
    held = {a.ctypes.data for a in spec.params.values()}
    assert {net.up.data_ptr(), net.down.data_ptr()} <= held


def test_experts_as_a_drop_in() -> None:
    """All in bslite, at every size."""
    net = Experts().eval()
    fast = bslite.optimize(net, fallback="error")
    for batch, length in ((3, 7), (1, 7), (5, 7), (3, 9), (3, 4), (2, 9), (3, 7)):
        x = torch.randn(batch, length, 24)
        with torch.no_grad():
            assert_three_way(fast(x).numpy(), net(x).numpy(), exact(Experts(), x).numpy())


def test_products_with_weights_that_are_values_stay_in_torch() -> None:
    def by_value(_: Any, x: Any, weight: Any, ends: Any) -> Any:
        return GROUPED(x, weight.relu(), ends)

    given = torch.randn(20, 16), torch.randn(2, 16, 8), torch.tensor([3, 16]).int()
    with pytest.raises(UnsupportedError, match="its weight is computed from the input"):
        from_torch(Made(by_value).eval(), given)


@pytest.mark.parametrize(
    ("bins", "least", "most"),
    [(4, 0, 3), (10, -1.0, 1.0), (7, 0.25, 0.75), (1, 0, 1), (100, -2, 2), (2, 0.1, 0.7), (9, -0.3, 0.6)],
)
def test_histograms(bins: int, least: float, most: float) -> None:
    x = torch.randn(6, 50)
    x[0, :8] = torch.tensor([least, most, least - 1, most + 1, torch.inf, -torch.inf, 1.0, 0.0])

    def counted(_: Any, x: Any) -> Any:
        return torch.histc(x, bins, least, most)

    edges = torch.linspace(least, most, bins + 1)
    near = [torch.nextafter(edges, torch.tensor(end)) for end in (torch.inf, -torch.inf)]
    for given in (x, torch.rand(3, 50), torch.cat([edges, *near]).expand(2, -1).contiguous()):
        spec = from_torch(Made(counted).eval(), given)
        np.testing.assert_array_equal(
            bslite.run(spec, given.numpy()), torch.histc(given, bins, least, most).numpy()
        )


def test_a_histogram_of_what_there_is_stays_in_torch() -> None:
    def counted(_: Any, x: Any) -> Any:
        return torch.histc(x)

    with pytest.raises(UnsupportedError, match="between the least and the greatest element"):
        from_torch(Made(counted).eval(), torch.rand(3, 50))


@pytest.mark.parametrize("kind", [torch.float32, torch.int64, torch.bool])
@pytest.mark.parametrize(("n", "axis"), [(1, -1), (2, 1), (1, 0), (3, -1)])
@pytest.mark.parametrize("around", ["", "before", "after"])
def test_differences(kind: Any, n: int, axis: int, around: str) -> None:
    def differences(_: Any, x: Any) -> Any:
        x = (3 * x).to(kind)
        first = x.select(axis, 0).unsqueeze(axis)
        return x.diff(n, axis, **{"": {}, "before": {"prepend": first}, "after": {"append": x}}[around])

    net, x = Made(differences).eval(), torch.randn(4, 5, 6)
    spec = from_torch(net, x, dynamic_shapes={} if axis == 0 else None)
    np.testing.assert_array_equal(bslite.run(spec, x.numpy()), net(x).numpy())


FAMILIES = {
    "Mixtral": {"num_local_experts": 4},
    "Olmoe": {"num_experts": 4},
    "Qwen3Moe": {"num_experts": 4, "moe_intermediate_size": 48, "head_dim": 16},
    "Qwen2Moe": {"num_experts": 4, "moe_intermediate_size": 48, "shared_expert_intermediate_size": 64},
    "GraniteMoe": {"num_local_experts": 4},
    "GptOss": {"num_local_experts": 4, "head_dim": 16},
    "DeepseekV3": {
        "num_key_value_heads": 4, "moe_intermediate_size": 48, "n_routed_experts": 4, "n_group": 1,
        "topk_group": 1, "q_lora_rank": 32, "kv_lora_rank": 32, "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 16, "v_head_dim": 16, "first_k_dense_replace": 1,
    },
}  # fmt: skip


def language_model(family: str) -> Any:
    """A small one with random weights."""
    transformers = pytest.importorskip("transformers")
    if importlib.util.find_spec("torchvision") is not None:
        import_models()  # transformers imports it
    try:
        model, config = (getattr(transformers, f"{family}{kind}") for kind in ("ForCausalLM", "Config"))
    except (ImportError, AttributeError) as e:
        pytest.skip(str(e))
    sizes = {
        "vocab_size": 300, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "num_experts_per_tok": 2, "eos_token_id": None,
        "pad_token_id": 0,
    }  # fmt: skip
    torch.manual_seed(0)
    return model(config(**{**sizes, **FAMILIES[family]})).eval()


@pytest.mark.parametrize("family", FAMILIES)
def test_models_of_transformers(family: str) -> None:
    net = language_model(family)

    def logits(owner: Any, ids: Any) -> Any:
        return owner.net(input_ids=ids, use_cache=False).logits

    ids = torch.randint(300, (2, 12))
    made = Made(logits, net=net).eval()
    spec = from_torch(made, ids)
    assert "grouped_linear" in {n.op for n in spec.nodes}
    with torch.no_grad():
        peer = made(ids).numpy()
        net.config._experts_implementation = "eager"  # the products by groups have no float64
        truth = Made(logits, net=net.double()).eval()(ids).numpy()
    assert_three_way(bslite.run(spec, ids.numpy()), peer, truth)


@pytest.mark.parametrize("family", FAMILIES)
def test_generation_by_models_of_transformers(family: str) -> None:
    """With their cache, and all that does not grow with it in bslite."""
    net, ids = language_model(family), torch.randint(1, 300, (2, 9))
    with torch.no_grad():
        want = net.generate(ids, max_new_tokens=6, do_sample=False)
        fast = bslite.optimize(net, fallback="error")
        for _ in range(2):
            assert (fast.generate(ids, max_new_tokens=6, do_sample=False) == want).all()


def test_any_number_of_threads_gives_the_same_bits() -> None:
    spec, x = from_torch(Experts(70, 1100).eval(), torch.randn(2, 7, 70)), np.random.default_rng(0)
    given = x.standard_normal((2, 7, 70), np.float32)
    one = bslite.run(spec, given, threads=1)
    for how in ({"threads": 2}, {"threads": 5}, {"threads": 2, "layerwise": True}):
        assert bslite.run(spec, given, **how).tobytes() == one.tobytes()
