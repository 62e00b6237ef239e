"""torch's encoder layers under ``torch.compile``, where each is one operation: torch's fast path."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.check import assert_three_way
from support.dropin_models import nn, torch

import bslite

FORMS = {"after": {}, "before": {"norm_first": True}, "gelu": {"activation": "gelu"}}


@pytest.fixture(autouse=True)
def _fresh() -> Any:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def layer(**how: Any) -> Any:
    return nn.TransformerEncoderLayer(16, 2, 24, batch_first=True, **how)


def alike(net: Any, fast: Any, *given: Any, **named: Any) -> Any:
    """Three-way; NaN in the same places."""
    exact = copy.deepcopy(net).double()
    args, kwargs = torch.utils._pytree.tree_map(
        lambda x: x.double() if x.is_floating_point() else x, (given, named)
    )
    with torch.no_grad():
        made, peer, truth = fast(*given, **named), net(*given, **named), exact(*args, **kwargs)
    assert_three_way(made.numpy(), peer.numpy(), truth.numpy())
    return made


def compiled(net: Any) -> Any:
    """``net``, and an error if torch has to run anything of it."""
    return torch.compile(net, backend="bslite", options={"tune": False, "fallback": "error"})


@pytest.mark.parametrize("how", FORMS.values(), ids=FORMS)
def test_encoders_of_any_batch_and_length(how: Any) -> None:
    net = nn.TransformerEncoder(layer(**how), 2, enable_nested_tensor=False).eval()
    fast = compiled(net)
    for batch, length in ((2, 5), (3, 5), (1, 5), (2, 9), (4, 7)):
        alike(net, fast, torch.randn(batch, length, 16))


def padding(length: int = 5) -> Any:
    """Of three images the first has three tokens, the last four."""
    return torch.arange(length) >= torch.tensor([3, length, 4])[:, None]


def causal() -> Any:
    return nn.Transformer.generate_square_subsequent_mask(5)


MASKS = {
    "causal": lambda: {"src_mask": causal()},
    "padding": lambda: {"src_key_padding_mask": padding()},
    "both": lambda: {"src_mask": causal() < 0, "src_key_padding_mask": padding()},
    "for each head": lambda: {"src_mask": torch.eye(5).repeat(6, 1, 1).flip(-1) > 0},
    "an image of padding alone": lambda: {
        "src_key_padding_mask": padding() | torch.tensor([[False], [True], [False]])
    },
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_masks(mask: Any) -> None:
    net = layer().eval()
    masks = mask()
    made = alike(net, compiled(net), torch.randn(3, 5, 16), **masks)
    hidden = masks.get("src_key_padding_mask")
    empty = hidden is not None and bool(hidden.all(1).any())
    assert bool(made.isnan().any()) == empty  # as torch has it


#: Where torch's two ways through an encoder layer differ: the fast one asks of a mask only what is not zero.
DOUBTFUL = {
    "numbers to add": lambda: {"src_mask": torch.arange(25.0).reshape(5, 5) % 3 - 1},
    "numbers to add, at keys": lambda: {"src_key_padding_mask": torch.arange(15.0).reshape(3, 5) % 4},
    "a row without a key": lambda: {"src_mask": torch.arange(5)[:, None].expand(5, 5) == 2},
    "an image of padding alone": MASKS["an image of padding alone"],
}


@contextmanager
def the_longer_way() -> Iterator[None]:
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


@pytest.mark.parametrize("mask", DOUBTFUL.values(), ids=DOUBTFUL)
def test_masks_that_torch_takes_in_two_ways(mask: Any) -> None:
    """``torch.compile`` gives what the call gives in eager mode, ``optimize`` what torch's documentation says
    of masks, which is what eager mode gives without its fast path.
    """
    net, x, masks = layer().eval(), torch.randn(3, 5, 16), mask()
    quick = alike(net, compiled(net), x, **masks)
    with the_longer_way():
        slow = alike(net, bslite.optimize(copy.deepcopy(net), tune=False, fallback="error"), x, **masks)
    assert not torch.allclose(quick, slow, atol=1e-2)
    assert not slow.isnan().any()
    with torch.no_grad():
        made = bslite.optimize(copy.deepcopy(net), tune=False, fallback="error")(x, **masks)
    assert torch.equal(made, slow)


def test_a_mask_of_the_module() -> None:
    class Causal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer()
            self.register_buffer("mask", causal())

        def forward(self, x: Any) -> Any:
            return self.layer(x, self.mask)

    net = Causal().eval()
    fast = compiled(net)
    for batch in (3, 2, 4, 1):
        alike(net, fast, torch.randn(batch, 5, 16))


def test_an_exported_layer() -> None:
    """The operation in a module's own forward, which from_torch takes as it is."""

    class Fast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = layer()

        def forward(self, x: Any) -> Any:
            own, attention = self.inner, self.inner.self_attn
            return torch._transformer_encoder_layer_fwd(
                x, 16, 2, attention.in_proj_weight, attention.in_proj_bias, attention.out_proj.weight,
                attention.out_proj.bias, False, False, 1e-5, own.norm1.weight, own.norm1.bias,
                own.norm2.weight, own.norm2.bias, own.linear1.weight, own.linear1.bias, own.linear2.weight,
                own.linear2.bias,
            )  # fmt: skip

    net = Fast().eval()
    spec = bslite.from_torch(net, torch.randn(2, 5, 16))
    alike(net, lambda x: torch.from_numpy(bslite.run(spec, x.numpy())), torch.randn(3, 5, 16))
