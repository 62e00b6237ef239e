"""Seeded random weights with which a network behaves like a trained one: its output answers to the image.

For demos, tests and benchmarks: no download, no torch. Two things keep a signal alive through many layers.
Weights of variance gain / fan_in keep its size, the gain undoing what the activation before them lost (He et
al., arXiv 1502.01852, eq. 10). And the weights of one output sum to zero: activations are positive, so
otherwise their common mean grows from layer to layer until every image looks the same (Brock et al., arXiv
2101.08692, section 4).
"""

import math

import numpy as np

from bslite.frontends.weights import architectures
from bslite.ops import Shape
from bslite.spec import Array, Node

#: 1 / E[f(z)^2] for a standard normal z.
GAINS = {"relu": 2.0, "relu6": 2.0, "silu": 2.8}
#: Layers that hand on what an activation made.
TRANSPARENT = {"max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "dropout", "flatten", "concat"}


def random_state_dict(arch: str, seed: int = 0, num_classes: int = 1000) -> dict[str, Array]:
    """A float32 array for every parameter of ``arch``, under torchvision's names; same seed, same bits.

    Batch norms get non-trivial statistics: weight in [0.5, 1.5] (a quarter of that where a residual branch
    ends), variance in [0.5, 2], means and biases in [-0.2, 0.2]. Only uniform draws and exactly rounded
    arithmetic are used, so every platform makes the same.
    """
    net, _ = architectures.get(arch).describe(num_classes)
    rng = np.random.Generator(np.random.PCG64(seed))
    nodes = {node.name: node for node in net.graph.nodes}
    joined = _identity_branches(nodes)

    def uniform(shape: Shape, low: float, high: float) -> Array:
        return rng.random(shape, np.float32) * np.float32(high - low) + np.float32(low)

    weights: dict[str, Array] = {}
    for node in net.graph.nodes:
        for role, key in node.params.items():
            shape = net.wanted[key]
            if node.op == "batch_norm":
                low, high = {
                    "weight": (0.5, 1.5),
                    "bias": (-0.2, 0.2),
                    "running_mean": (-0.2, 0.2),
                    "running_var": (0.5, 2.0),
                }[role]
                if role == "weight" and node.name in joined:
                    low, high = low / 4, high / 4  # each block adds to the trunk: keep the sum from growing
                weights[key] = uniform(shape, low, high)
            elif role == "weight":
                fan_in = math.prod(shape[1:])
                bound = math.sqrt(3 * _gain(node, nodes) / fan_in)  # uniform in [-b, b] has variance b^2 / 3
                weights[key] = uniform(shape, -bound, bound)
                if shape[1] > 1:  # not depthwise, whose nine weights would lose the mean of the one channel
                    weights[key] -= _mean(weights[key])
            else:
                weights[key] = uniform(shape, -0.1, 0.1)
    return weights


def _mean(weight: Array) -> Array:
    """Mean over all axes but the first, the same on every platform.

    The sum in float64 is exact, so NumPy may add in any order: the terms are multiples of 2^-25 times their
    bound, and there are fewer than 2^28 of them.
    """
    axes = tuple(range(1, weight.ndim))
    total = weight.sum(axis=axes, keepdims=True, dtype=np.float64)
    return (total / math.prod(weight.shape[1:])).astype(np.float32)


def _gain(node: Node, nodes: dict[str, Node]) -> float:
    """What the weights of ``node`` must make up for: the activation its input comes from, and any gate."""
    gain = 1.0
    source = nodes.get(node.inputs[0])
    while source is not None:
        if source.op in GAINS:
            return gain * GAINS[source.op]
        if source.op == "mul":  # by a sigmoid s, with E[s^2] about one third
            gain *= 3
        elif source.op not in TRANSPARENT:
            return gain
        source = nodes.get(source.inputs[-1])
    return gain


def _identity_branches(nodes: dict[str, Node]) -> set[str]:
    """Batch norms that end a residual branch whose shortcut is the identity."""
    ends: set[str] = set()
    for node in nodes.values():
        if node.op == "add":
            norms = [i for i in node.inputs if i in nodes and nodes[i].op == "batch_norm"]
            if len(norms) == 1:
                ends.update(norms)
    return ends
