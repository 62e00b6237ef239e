"""ResNet: He, Zhang, Ren, Sun, "Deep Residual Learning for Image Recognition", arXiv 1512.03385.

As in torchvision, a bottleneck halves the image in its 3x3 convolution, not in the first 1x1 ("v1.5").
"""

from collections.abc import Callable

from bslite.frontends.weights.architectures.blocks import conv_norm
from bslite.frontends.weights.architectures.net import Architecture, Net, register

Branch = Callable[[Net, str, str, int, int], str]


def basic(net: Net, x: str, path: str, width: int, stride: int) -> str:
    """Two 3x3 convolutions."""
    x = conv_norm(net, x, f"{path}.conv1", f"{path}.bn1", width, 3, stride=stride, padding=1)
    x = net.relu(x, f"{path}.relu")
    return conv_norm(net, x, f"{path}.conv2", f"{path}.bn2", width, 3, padding=1)


def bottleneck(net: Net, x: str, path: str, width: int, stride: int) -> str:
    """1x1 down to ``width`` channels, 3x3, 1x1 up to four times as many."""
    x = conv_norm(net, x, f"{path}.conv1", f"{path}.bn1", width, 1)
    x = net.relu(x, f"{path}.relu")
    x = conv_norm(net, x, f"{path}.conv2", f"{path}.bn2", width, 3, stride=stride, padding=1)
    x = net.relu(x, f"{path}.relu")
    return conv_norm(net, x, f"{path}.conv3", f"{path}.bn3", 4 * width, 1)


def residual(net: Net, x: str, path: str, branch: Branch, width: int, stride: int) -> str:
    """``relu(branch(x) + x)``, the shortcut projected where the width changes."""
    y = branch(net, x, path, width, stride)
    if net.channels(y) != net.channels(x):
        down = f"{path}.downsample"
        x = conv_norm(net, x, f"{down}.0", f"{down}.1", net.channels(y), 1, stride=stride)
    return net.relu(net.add("add", f"{path}.add", y, x), f"{path}.relu")


def _body(branch: Branch, depths: tuple[int, int, int, int]) -> Callable[[Net, str], str]:
    def body(net: Net, x: str) -> str:
        x = conv_norm(net, x, "conv1", "bn1", 64, 7, stride=2, padding=3)
        x = net.max_pool(net.relu(x, "relu"), "maxpool", 3, 2, padding=1)
        for stage, depth in enumerate(depths):
            for index in range(depth):
                stride = 2 if stage and not index else 1
                x = residual(net, x, f"layer{stage + 1}.{index}", branch, 64 << stage, stride)
        x = net.flatten(net.adaptive_pool(x, "avgpool"))
        return net.linear(x, "fc", net.classes)

    return body


register(
    *[
        Architecture(name, _body(branch, depths), "arXiv 1512.03385", "fc")
        for name, branch, depths in (
            ("resnet18", basic, (2, 2, 2, 2)),
            ("resnet34", basic, (3, 4, 6, 3)),
            ("resnet50", bottleneck, (3, 4, 6, 3)),
            ("resnet101", bottleneck, (3, 4, 23, 3)),
            ("resnet152", bottleneck, (3, 8, 36, 3)),
        )
    ]
)
