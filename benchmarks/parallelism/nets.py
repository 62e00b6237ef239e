"""The networks: four of torchvision's, BERT with Q, K and V apart, two towers; weights are seeded noise."""

from collections.abc import Callable, Mapping

import numpy as np

from bslite.frontends.weights.architectures.random_weights import random_state_dict
from bslite.frontends.weights.state_dict import from_state_dict
from bslite.spec import GraphBuilder, ModelSpec

LAYERS, HIDDEN, HEADS, INNER, TOKENS = 6, 768, 12, 3072, 128  # of BERT
TOWER, DEPTH, FEATURES = 1024, 6, 512  # of each tower


def torchvision(name: str) -> Callable[[int], ModelSpec]:
    """A named architecture."""
    return lambda seed: from_state_dict(name, random_state_dict(name, seed))


class _Layers(GraphBuilder):
    """A builder that draws the parameters."""

    def __init__(self, name: str, seed: int) -> None:
        super().__init__(name)
        self.rng = np.random.default_rng(seed)

    def linear(self, x: str, name: str, inputs: int, outputs: int) -> str:
        """A fully connected layer."""
        scale = np.float32(inputs**-0.5)
        self.params[f"{name}.weight"] = scale * self.rng.standard_normal((outputs, inputs), np.float32)
        self.params[f"{name}.bias"] = np.zeros(outputs, np.float32)
        return self.add("linear", name, x, params={r: f"{name}.{r}" for r in ("weight", "bias")})

    def norm(self, x: str, name: str, size: int) -> str:
        """A layer norm."""
        self.params[f"{name}.weight"] = np.ones(size, np.float32)
        self.params[f"{name}.bias"] = np.zeros(size, np.float32)
        params = {r: f"{name}.{r}" for r in ("weight", "bias")}
        return self.add("layer_norm", name, x, params=params, normalized_shape=(size,))


def bert(seed: int, layers: int = LAYERS, hidden: int = HIDDEN, heads: int = HEADS) -> ModelSpec:
    """BERT's encoder on embedded tokens ``[N, 128, hidden]``, its products by Q, K and V apart."""
    g = _Layers("bert", seed)
    x = g.input("x", ("N", TOKENS, hidden), (1, TOKENS, hidden))
    depth = hidden // heads
    for i in range(layers):
        at = f"layer.{i}"
        q, k, v = (
            _heads(g, g.linear(x, f"{at}.{n}", hidden, hidden), f"{at}.{n}", heads, depth) for n in "qkv"
        )
        turned = g.add("permute", f"{at}.keys", k, order=(0, 1, 3, 2))
        scores = g.add("matmul", f"{at}.scores", q, turned)  # as if the weights of Q held the scale
        mixed = g.add("matmul", f"{at}.mixed", g.add("softmax", f"{at}.softmax", scores, axis=-1), v)
        mixed = g.add("permute", f"{at}.together", mixed, order=(0, 2, 1, 3))
        mixed = g.add("reshape", f"{at}.joined", mixed, shape=(0, TOKENS, hidden))
        mixed = g.linear(mixed, f"{at}.out", hidden, hidden)
        x = g.norm(g.add("add", f"{at}.added", x, mixed), f"{at}.norm1", hidden)
        wide = g.add("gelu", f"{at}.gelu", g.linear(x, f"{at}.up", hidden, INNER))
        wide = g.linear(wide, f"{at}.down", INNER, hidden)
        x = g.norm(g.add("add", f"{at}.added2", x, wide), f"{at}.norm2", hidden)
    return g.build(x)


def _heads(g: GraphBuilder, x: str, name: str, heads: int, depth: int) -> str:
    split = g.add("reshape", f"{name}.split", x, shape=(0, TOKENS, heads, depth))
    return g.add("permute", f"{name}.heads", split, order=(0, 2, 1, 3))


def two_towers(seed: int, depth: int = DEPTH, size: int = TOWER) -> ModelSpec:
    """A recommender's two towers of fully connected layers, for users and items; their dot product."""
    g = _Layers("two_towers", seed)
    ends = []
    for tower in ("user", "item"):
        x = g.input(tower, ("N", FEATURES))
        inputs = FEATURES
        for i in range(depth):
            x = g.add("relu", f"{tower}.relu{i}", g.linear(x, f"{tower}.{i}", inputs, size))
            inputs = size
        ends.append(x)
    product = g.add("mul", "product", *ends)
    return g.build(g.add("sum", "score", product, axes=(1,), keepdim=True))


NETS: Mapping[str, Callable[[int], ModelSpec]] = {
    **{name: torchvision(name) for name in ("googlenet", "inception_v3", "squeezenet1_1", "resnet50")},
    "bert": bert,
    "two_towers": two_towers,
}
