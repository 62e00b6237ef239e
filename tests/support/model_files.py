"""A small model with everything a model file must keep, for the tests of the file format."""

import math

import numpy as np

from bslite.spec import GraphBuilder, ModelSpec


def small_model() -> ModelSpec:
    """A few layers with every kind of attribute value, and parameters of every memory layout."""
    rng = np.random.default_rng(0)
    graph = GraphBuilder('tiny "é" \n')
    x = graph.input("x", ("N", 3, "H", "W"), (1, 3, 6, 6))
    graph.params = {
        "z.weight": np.asfortranarray(rng.standard_normal((4, 3, 3, 3)).astype(np.float32)),
        "a": rng.standard_normal((4, 8)).astype(np.float32)[:, ::2][:, 0],
        "scale": np.array(3.5, np.float32),
        "unused": np.zeros((0, 2), np.float32),
        "strange": np.array([np.nan, np.inf, -np.inf, -0.0], np.float32),
    }
    y = graph.add("conv2d", "z", x, params={"weight": "z.weight", "bias": "a"}, padding=(0, 1, 2, 3))
    y = graph.add("max_pool2d", "pool", y, kernel=2)  # stride None
    y = graph.add("pad", "pad", y, pads=(0, 0, 1, 1, 0, 0, 0, 0), value=-math.inf)
    y = graph.add("leaky_relu", "act", y, negative_slope=0.1)
    y = graph.add("mul", "mul", y, graph.add("constant", "scale", params={"value": "scale"}))
    return graph.build(y, "act", "x")
