"""VGG: Simonyan, Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition".

arXiv 1409.1556, table 1, columns A, B, D and E; ``_bn`` adds a batch norm behind every convolution.
"""

from collections.abc import Callable

from bslite.frontends.weights.architectures.blocks import numbered
from bslite.frontends.weights.architectures.net import Architecture, Net, register

#: Number of 3x3 convolutions at each of the five resolutions.
DEPTHS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
WIDTHS = (64, 128, 256, 512, 512)


def _body(depths: tuple[int, ...], batch_norm: bool) -> Callable[[Net, str], str]:
    def body(net: Net, x: str) -> str:
        name = numbered("features")
        for width, depth in zip(WIDTHS, depths, strict=True):
            for _ in range(depth):
                x = net.conv(x, next(name), width, 3, padding=1, bias=True)
                if batch_norm:
                    x = net.norm(x, next(name))
                x = net.relu(x, next(name))
            x = net.max_pool(x, next(name), 2, 2)
        x = net.flatten(net.adaptive_pool(x, "avgpool", 7))
        name = numbered("classifier")
        for _ in range(2):
            x = net.relu(net.linear(x, next(name), 4096), next(name))
            x = net.dropout(x, next(name), 0.5)
        return net.linear(x, next(name), net.classes)

    return body


register(
    *[
        Architecture(f"vgg{layers}{suffix}", _body(depths, bool(suffix)), "arXiv 1409.1556", "classifier.6")
        for layers, depths in DEPTHS.items()
        for suffix in ("", "_bn")
    ]
)
