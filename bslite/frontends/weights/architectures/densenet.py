"""DenseNet-BC: Huang, Liu, van der Maaten, Weinberger, "Densely Connected Convolutional Networks".

arXiv 1608.06993, table 1.
"""

import re
from collections.abc import Callable

from bslite.frontends.weights.architectures.net import Architecture, Net, register


def dense_layer(net: Net, x: str, path: str, growth: int) -> str:
    """``growth`` new channels from all the channels so far, through a bottleneck four times as wide."""
    x = net.relu(net.norm(x, f"{path}.norm1"), f"{path}.relu1")
    x = net.conv(x, f"{path}.conv1", 4 * growth, 1)
    x = net.relu(net.norm(x, f"{path}.norm2"), f"{path}.relu2")
    return net.conv(x, f"{path}.conv2", growth, 3, padding=1)


def dense_block(net: Net, x: str, path: str, growth: int, depth: int) -> str:
    """Each layer reads the input and everything the layers before it made."""
    made = [x]
    for index in range(1, depth + 1):
        layer = f"{path}.denselayer{index}"
        x = net.concat(f"{layer}.concat", *made) if len(made) > 1 else made[0]
        made.append(dense_layer(net, x, layer, growth))
    return net.concat(f"{path}.concat", *made)


def transition(net: Net, x: str, path: str) -> str:
    """Half the channels, half the height and width."""
    x = net.relu(net.norm(x, f"{path}.norm"), f"{path}.relu")
    x = net.conv(x, f"{path}.conv", net.channels(x) // 2, 1)
    return net.avg_pool(x, f"{path}.pool", 2, 2)


def _body(growth: int, stem: int, depths: tuple[int, int, int, int]) -> Callable[[Net, str], str]:
    def body(net: Net, x: str) -> str:
        x = net.conv(x, "features.conv0", stem, 7, stride=2, padding=3)
        x = net.relu(net.norm(x, "features.norm0"), "features.relu0")
        x = net.max_pool(x, "features.pool0", 3, 2, padding=1)
        for index, depth in enumerate(depths, 1):
            x = dense_block(net, x, f"features.denseblock{index}", growth, depth)
            if index < len(depths):
                x = transition(net, x, f"features.transition{index}")
        x = net.relu(net.norm(x, "features.norm5"), "relu")
        x = net.flatten(net.adaptive_pool(x, "avgpool"))
        return net.linear(x, "classifier", net.classes)

    return body


def modern_name(key: str) -> str:
    """``denselayer1.norm.1.weight``, as published weight files have it, to ``denselayer1.norm1.weight``."""
    return re.sub(r"(denselayer\d+\.(?:norm|conv))\.([12]\.)", r"\1\2", key)


register(
    *[
        Architecture(name, _body(growth, stem, depths), "arXiv 1608.06993", "classifier", rename=modern_name)
        for name, growth, stem, depths in (
            ("densenet121", 32, 64, (6, 12, 24, 16)),
            ("densenet161", 48, 96, (6, 12, 36, 24)),
            ("densenet169", 32, 64, (6, 12, 32, 32)),
            ("densenet201", 32, 64, (6, 12, 48, 32)),
        )
    ]
)
