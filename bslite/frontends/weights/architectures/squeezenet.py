"""SqueezeNet: Iandola et al., "AlexNet-level accuracy with 50x fewer parameters", arXiv 1602.07360.

Version 1.1, by the authors, pools earlier: 2.4 times less computation for the same accuracy.
"""

from collections.abc import Callable

from bslite.frontends.weights.architectures.blocks import numbered
from bslite.frontends.weights.architectures.net import Architecture, Net, register


def fire(net: Net, x: str, path: str, squeeze: int, expand: int) -> str:
    """1x1 down to ``squeeze`` channels, then 1x1 and 3x3 side by side, ``expand`` channels each."""

    def conv_relu(x: str, part: str, out: int, kernel: int) -> str:
        x = net.conv(x, f"{path}.{part}", out, kernel, padding=kernel // 2, bias=True)
        return net.relu(x, f"{path}.{part}_activation")

    x = conv_relu(x, "squeeze", squeeze, 1)
    return net.concat(
        f"{path}.concat", conv_relu(x, "expand1x1", expand, 1), conv_relu(x, "expand3x3", expand, 3)
    )


def _body(stem: tuple[int, int], groups: tuple[tuple[int, ...], ...]) -> Callable[[Net, str], str]:
    """``groups`` of fire modules by squeeze width, a max pool before each; they expand fourfold twice."""

    def body(net: Net, x: str) -> str:
        name = numbered("features")
        out, kernel = stem
        x = net.relu(net.conv(x, next(name), out, kernel, stride=2, bias=True), next(name))
        for group in groups:
            x = net.max_pool(x, next(name), 3, 2, ceil=True)
            for squeeze in group:
                x = fire(net, x, next(name), squeeze, 4 * squeeze)
        name = numbered("classifier")
        x = net.dropout(x, next(name), 0.5)
        x = net.relu(net.conv(x, next(name), net.classes, 1, bias=True), next(name))
        return net.flatten(net.adaptive_pool(x, next(name)))

    return body


register(
    *[
        Architecture(name, _body(stem, groups), "arXiv 1602.07360", "classifier.1")
        for name, stem, groups in (
            ("squeezenet1_0", (96, 7), ((16, 16, 32), (32, 48, 48, 64), (64,))),
            ("squeezenet1_1", (64, 3), ((16, 16), (32, 32), (48, 48, 64, 64))),
        )
    ]
)
