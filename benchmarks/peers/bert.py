"""BERT's encoder as a module of torch: embedded tokens in, so that no tokenizer is needed; seeded weights."""

from typing import Any

import torch
from torch import nn

TOKENS, LAYERS, HIDDEN, HEADS, INNER = 128, 12, 768, 12, 3072  # of bert-base, and a usual length
EPS = 1e-12  # of its layer norms


class Layer(nn.Module):
    """Attention, then two linear layers around GELU; each is added to its input and normalised."""

    def __init__(self, hidden: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(hidden, hidden) for _ in range(4))
        self.up, self.down = nn.Linear(hidden, inner), nn.Linear(inner, hidden)
        self.norm1, self.norm2 = nn.LayerNorm(hidden, EPS), nn.LayerNorm(hidden, EPS)

    def forward(self, x: Any) -> Any:
        """``[N, tokens, hidden]`` in and out."""
        q, k, v = (self._by_heads(linear(x)) for linear in (self.query, self.key, self.value))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = self.norm1(x + self.out(mixed))
        return self.norm2(x + self.down(nn.functional.gelu(self.up(x))))

    def _by_heads(self, x: Any) -> Any:
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)


def bert(
    seed: int, layers: int = LAYERS, hidden: int = HIDDEN, heads: int = HEADS, inner: int = INNER
) -> nn.Module:
    """The encoder in eval mode. Weights have the scale that keeps the size of the signal."""
    torch.manual_seed(seed)
    module = nn.Sequential(*(Layer(hidden, heads, inner) for _ in range(layers)))
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=part.in_features**-0.5)
            nn.init.normal_(part.bias, std=0.02)
    return module.eval()
