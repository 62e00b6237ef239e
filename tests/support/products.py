"""Layers that multiply, of sizes that no loop nest was made for."""

from typing import Any

import numpy as np

from bslite.spec import ModelSpec
from support.graphs import Graph, one_op
from support.noise import noise

CONVS = {  # images, channels in and out, size, filter, and attributes
    "3x3": (1, 64, 64, (14, 14), (3, 3), {"padding": 1}),
    "few of all": (1, 4, 5, (9, 9), (3, 3), {"padding": 1}),
    "odd channels": (2, 33, 70, (7, 9), (3, 3), {"padding": 1}),
    "stride 2": (1, 40, 48, (15, 14), (3, 3), {"padding": 1, "stride": 2}),
    "strides": (1, 33, 17, (23, 20), (5, 3), {"padding": (2, 1, 2, 1), "stride": (3, 2)}),
    "uneven padding": (1, 32, 32, (10, 11), (3, 4), {"padding": (0, 1, 2, 3)}),
    "dilated": (1, 34, 32, (17, 15), (3, 3), {"padding": 3, "dilation": (3, 2)}),
    "dilated and strided": (1, 34, 32, (17, 19), (3, 3), {"padding": 2, "dilation": 2, "stride": 2}),
    "stride above the filter": (1, 32, 32, (20, 21), (2, 2), {"stride": (3, 4)}),
    "1x1": (3, 96, 80, (7, 7), (1, 1), {}),
    "1x1, stride 2": (3, 96, 64, (7, 9), (1, 1), {"stride": 2}),
    "1x1 with padding": (1, 32, 32, (5, 5), (1, 1), {"padding": 1}),
    "a picture": (2, 3, 32, (20, 23), (3, 3), {"padding": 1, "stride": 2}),
    "a large filter on a picture": (1, 3, 17, (21, 22), (7, 7), {"padding": 3, "stride": 2}),
    "patches": (2, 3, 40, (16, 24), (8, 8), {"stride": 8}),
    "a picture, uneven padding": (1, 5, 32, (12, 17), (3, 4), {"padding": (0, 1, 2, 3), "stride": (1, 2)}),
    "many terms": (1, 1100, 40, (5, 5), (1, 1), {}),
    "many terms and taps": (1, 260, 33, (6, 6), (3, 3), {"padding": 1}),
    "a line": (1, 64, 64, (1, 50), (1, 3), {"padding": (0, 1, 0, 1)}),
    "a column": (1, 64, 64, (50, 1), (3, 1), {"padding": (1, 0, 1, 0)}),
    "beyond the image": (1, 32, 32, (2, 2), (5, 5), {"padding": 4}),
    "pixels that meet in L1": (1, 2048, 32, (4, 4), (1, 1), {}),
}


def convolution(name: str, after: str = "") -> tuple[ModelSpec, list[Any]]:
    """One of `CONVS`, with an activation or a residual behind it, and its inputs."""
    n, c, k, size, filter_size, attributes = CONVS[name]
    g = Graph()
    x = g.input("x", ("N", c, *size), (n, c, *size))
    weight = noise(k, c, *filter_size) / np.float32(np.sqrt(c * np.prod(filter_size)))
    y = g("conv2d", "conv", x, weight=weight, bias=noise(k), **attributes)
    inputs = [noise(n, c, *size, seed=3)]
    if after == "residual":
        shape = g.build(y).infer_shapes([inputs[0].shape])[y]
        other = g.input("r", ("N", *shape[1:]), shape)
        y = g("relu", "act", g("add", "sum", y, other))
        inputs.append(noise(*shape, seed=4))
    elif after:
        y = g(after, "act", y)
    return g.build(y), inputs


def of(op: str, *inputs: Any, **given: Any) -> tuple[ModelSpec, list[Any]]:
    """A layer, and inputs for it, which have those sizes."""
    arrays = [noise(*shape, seed=n) for n, shape in enumerate(inputs)]
    return one_op(op, *arrays, **given), arrays


OTHERS = {
    "groups": lambda: of("conv2d", (2, 80, 9, 7), weight=noise(96, 40, 3, 3), groups=2, padding=1),
    "narrow groups": lambda: of("conv2d", (1, 36, 9, 7), weight=noise(24, 9, 3, 3), groups=4),
    "signals": lambda: of("conv1d", (2, 40, 50), weight=noise(33, 40, 5), stride=2, padding=2),
    "volumes": lambda: of("conv3d", (2, 33, 5, 6, 7), weight=noise(34, 33, 3, 3, 3), padding=1),
    "deep strides": lambda: of(
        "conv3d", (1, 32, 9, 8, 7), weight=noise(32, 32, 3, 2, 1), stride=(2, 1, 2), dilation=(2, 1, 1),
        padding=(2, 1, 0, 1, 0, 0),
    ),
    "one pixel of volumes": lambda: of("conv3d", (2, 48, 3, 4, 5), weight=noise(40, 48, 1, 1, 1)),
    "planes": lambda: of("conv3d", (1, 32, 7, 4, 5), weight=noise(9, 32, 3, 1, 1), padding=(1, 0, 0) * 2),
    "transposed": lambda: of("conv_transpose2d", (2, 40, 6, 7), weight=noise(40, 33, 3, 3), stride=2),
    "transposed groups": lambda: of(
        "conv_transpose2d", (1, 64, 6, 5), weight=noise(64, 32, 4, 4), stride=2, groups=2
    ),
    "given filters": lambda: of("conv2d_given", (2, 40, 9, 7), (48, 40, 3, 3), padding=1),
    "given filters of groups": lambda: of("conv2d_given", (1, 80, 9, 7), (70, 40, 3, 3), groups=2, stride=2),
    "given weights": lambda: of("linear_given", (50, 70), (40, 70)),
    "matrices": lambda: of("matmul", (3, 2, 45, 70), (3, 2, 70, 40)),
    "one matrix for all": lambda: of("matmul", (3, 45, 70), (70, 40)),
    "a matrix for some": lambda: of("matmul", (3, 2, 33, 40), (3, 1, 40, 65)),
}  # fmt: skip
