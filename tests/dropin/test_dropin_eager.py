"""What eager mode does and an export does not show: torch's transformers with masks, transforms, literals."""

from typing import Any

import pytest
from support.dropin_models import Stack, agree, by_bslite, near, nn, torch, wrapped
from support.torch_modules import Fn

import bslite


def padded(batch: int, length: int, at_end: bool = True) -> Any:
    """True where the last two tokens of a sequence, of the last one the first two, are padding."""
    mask = torch.zeros(batch, length, dtype=torch.bool)
    mask[:, -2:] = True
    if not at_end:
        mask[-1] = mask[-1].flip(0)
    return mask


#: torch says so whenever an encoder takes padding out.
PROTOTYPE = "ignore:.*nested tensors is in prototype stage"


@pytest.mark.filterwarnings(PROTOTYPE)
@pytest.mark.parametrize("norm", [None, nn.LayerNorm(16)])
def test_an_encoder_puts_zeros_where_padding_is(norm: Any) -> None:
    """As eager mode does if all padding is at the end, and only then."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    net = nn.TransformerEncoder(layer, 1, norm).eval()
    fast = wrapped(net)
    for batch, length, at_end in ((3, 7, True), (3, 7, False), (2, 5, True), (1, 5, True)):
        mask = padded(batch, length, at_end)
        made = agree(fast, net, torch.randn(batch, length, 16), src_key_padding_mask=mask)
        assert bool((made[0, -2:] == 0).all()) == at_end
    by_bslite(fast)
    x, mask = torch.randn(3, 7, 16), padded(3, 7)
    spec = bslite.from_torch(net, (x, None, mask))
    with torch.no_grad():
        want = net(x, src_key_padding_mask=mask).numpy()
    (got,) = [bslite.run(spec, [x.numpy(), mask.numpy()])]
    assert abs(got - want).max() < 1e-5
    assert not got[:, -2:].any()


def test_a_mask_that_may_be_causal_is_not_asked() -> None:
    net = nn.Transformer(16, 2, 1, 1, 32, batch_first=True).eval()
    fast = wrapped(net)
    for batch in (2, 3):
        mask = nn.Transformer.generate_square_subsequent_mask(5)
        agree(fast, net, torch.randn(batch, 7, 16), torch.randn(batch, 5, 16), tgt_mask=mask)
    by_bslite(fast)


def test_torchs_transformers_are_as_they_were() -> None:
    """Also after an export that fails."""
    before = nn.TransformerEncoder.forward
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

    class Wrong(nn.TransformerEncoder):
        def forward(self, x: Any) -> Any:
            assert nn.TransformerEncoder.forward is not before
            return super().forward(x).nonsense()

    net = Wrong(layer, 1, enable_nested_tensor=False).eval()
    with pytest.raises(bslite.UnsupportedError, match="nonsense"):
        bslite.from_torch(net, torch.randn(2, 7, 16))
    assert nn.TransformerEncoder.forward is before


def test_a_tensor_written_in_a_forward_is_a_constant() -> None:
    net = Stack(lambda x: x.index_select(1, torch.tensor([*range(16)])))
    fast = wrapped(net)
    agree(fast, net, torch.randn(3, 12))
    by_bslite(fast)


def test_a_transform_within_a_forward_is_undone() -> None:
    net = Stack(lambda x: torch.vmap(lambda row: row * row.sum())(x))
    fast = wrapped(net)
    agree(fast, net, torch.randn(3, 12))
    by_bslite(fast)


def test_writes_after_a_dropout_beside_a_transform() -> None:
    """What torch makes of a transform leaves out that a dropout may be the tensor itself (masks of
    transformers, and an encoder that writes over its embeddings).
    """

    def forward(x: Any) -> Any:
        mask = torch.vmap(lambda row: row > row.mean())(x)
        y = torch.nn.functional.dropout(torch.tanh(x), 0.1, training=False)
        y[:, 1] = 3.0
        return torch.where(mask, y * 2, y)

    net = Stack(forward)
    fast = wrapped(net)
    agree(fast, net, torch.randn(3, 12))
    by_bslite(fast)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.diff(dim=1), lambda x: x.diff(n=2), lambda x: torch.linalg.norm(x, dim=-1),
        lambda x: x.sigmoid().logit(1e-6), lambda x: x.count_nonzero(1),
    ],
)  # fmt: skip
def test_what_has_no_builder_is_written_out_in_what_has(function: Any) -> None:
    net = Fn(function)
    fast = wrapped(net)
    x = torch.randn(3, 12)
    want = agree(fast, net, x)
    by_bslite(fast)
    got = torch.as_tensor(bslite.run(bslite.from_torch(net, x), x.numpy()))
    assert float((got - want).abs().max()) <= 1e-5


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[torch.arange(x.shape[0]), (x > 0).sum(1) % 12],
        lambda x: x[:, None] * torch.zeros(x.shape[0], 1, 12),
        lambda x: x[:1, :3].repeat(x.shape[0], 1) + torch.ones(1, 3).repeat(x.shape[0], 1),
        lambda x: (x * 9).int().argmax(-1), lambda x: (x * 9).long().min(1),
        lambda x: (x > 0).long().argmin(),
    ],
)  # fmt: skip
def test_of_free_sizes_and_of_integers(function: Any) -> None:
    net = Fn(function)
    fast = wrapped(net)
    for batch in (3, 5):
        agree(fast, net, torch.randn(batch, 12))
    by_bslite(fast)


def test_random_numbers_stay_torchs() -> None:
    net = Stack(lambda x: x + torch.rand_like(x))
    fast = wrapped(net, quiet=False, fallback="silent")
    results = []
    for module in (fast, net):
        torch.manual_seed(3)
        with torch.no_grad():
            results.append(module(torch.ones(3, 12)))
    assert torch.allclose(*results, atol=1e-6)
    assert 0 < bslite.report(fast).kinds[0].torch_share < 1


def test_noise_like_a_value_is_drawn_in_its_order() -> None:
    """A convolution of one channel gives its result channels last; what bslite hands on is row-major."""

    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 2, 3)

        def forward(self, x: Any) -> Any:
            y = torch.exp(self.first(x))
            return self.second(y + torch.randn_like(y) * torch.rand_like(y))

    net, x = Noisy().eval(), torch.randn(2, 1, 8, 8)
    fast = bslite.optimize(net, tune=False, fallback="silent")
    with torch.no_grad():
        for _ in range(2):
            torch.manual_seed(3)
            got = fast(x)
            torch.manual_seed(3)
            near(got, Noisy.forward(net, x))
