"""Seeded random weights with which a network behaves like a trained one: nothing dies, nothing explodes.

For demos, tests and benchmarks: no download, no torch. He et al., arXiv 1502.01852, eq. 10: a layer keeps the
size of its signal if its weights have variance gain / fan_in, gain 2 behind a rectifier, 1 elsewhere.
"""

from __future__ import annotations

import math

import numpy as np

from bslite.frontends import architectures
from bslite.ops import Shape
from bslite.spec import Array, Node

RECTIFIERS = {"relu", "relu6", "silu"}
#: Layers that pass the sign structure of their input on: look through them for the rectifier.
TRANSPARENT = {"max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "dropout", "flatten", "concat"}


def random_state_dict(arch: str, seed: int = 0, num_classes: int = 1000) -> dict[str, Array]:
    """A float32 array for every parameter of ``arch``, under torchvision's names; same seed, same bits.

    Batch norms get statistics as trained ones do: weight in [0.5, 1.5], variance in [0.5, 2], small means and
    biases.
    Only uniform draws from PCG64 are used: they involve no math library, so every platform makes the same.
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
                gain = 2 if _rectified(node, nodes) else 1
                bound = math.sqrt(3 * gain / math.prod(shape[1:]))  # uniform in [-b, b] has variance b^2 / 3
                weights[key] = uniform(shape, -bound, bound)
            else:
                weights[key] = uniform(shape, -0.1, 0.1)
    return weights


def _rectified(node: Node, nodes: dict[str, Node]) -> bool:
    """Whether what reaches ``node`` comes out of a rectifier."""
    source = nodes.get(node.inputs[0])
    while source is not None and source.op in TRANSPARENT:
        source = nodes.get(source.inputs[0])
    return source is not None and source.op in RECTIFIERS


def _identity_branches(nodes: dict[str, Node]) -> set[str]:
    """Batch norms that end a residual branch whose shortcut is the identity."""
    ends: set[str] = set()
    for node in nodes.values():
        if node.op == "add":
            norms = [i for i in node.inputs if i in nodes and nodes[i].op == "batch_norm"]
            if len(norms) == 1:
                ends.update(norms)
    return ends
