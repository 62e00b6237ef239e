"""GoogLeNet: Szegedy et al., "Going Deeper with Convolutions", arXiv 1409.4842, with batch norms.

The auxiliary classifiers train the network and play no part in inference.
"""

from bslite.frontends.weights.architectures.blocks import basic_conv
from bslite.frontends.weights.architectures.net import Architecture, Net, register

#: Widths per module: 1x1; 3x3 reduced, 3x3; "5x5" reduced, "5x5"; pool projection (table 1 of the paper).
MODULES = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}


def inception(net: Net, x: str, path: str, widths: tuple[int, int, int, int, int, int]) -> str:
    """Four branches over the same input, joined along channels."""
    one, reduce3, three, reduce5, five, pool = widths
    branch1 = basic_conv(net, x, f"{path}.branch1", one, 1)
    branch2 = basic_conv(net, x, f"{path}.branch2.0", reduce3, 1)
    branch2 = basic_conv(net, branch2, f"{path}.branch2.1", three, 3, padding=1)
    branch3 = basic_conv(net, x, f"{path}.branch3.0", reduce5, 1)
    # The paper's 5x5; torchvision's weights were trained with 3x3 by mistake, and need it.
    branch3 = basic_conv(net, branch3, f"{path}.branch3.1", five, 3, padding=1)
    branch4 = net.max_pool(x, f"{path}.branch4.0", 3, 1, padding=1, ceil=True)
    branch4 = basic_conv(net, branch4, f"{path}.branch4.1", pool, 1)
    return net.concat(f"{path}.concat", branch1, branch2, branch3, branch4)


def body(net: Net, x: str) -> str:
    """Three convolutions, nine inception modules, one fully connected layer."""
    x = basic_conv(net, x, "conv1", 64, 7, stride=2, padding=3)
    x = net.max_pool(x, "maxpool1", 3, 2, ceil=True)
    x = basic_conv(net, x, "conv2", 64, 1)
    x = basic_conv(net, x, "conv3", 192, 3, padding=1)
    x = net.max_pool(x, "maxpool2", 3, 2, ceil=True)
    for module, widths in MODULES.items():
        if module == "4a":
            x = net.max_pool(x, "maxpool3", 3, 2, ceil=True)
        if module == "5a":
            x = net.max_pool(x, "maxpool4", 2, 2, ceil=True)
        x = inception(net, x, f"inception{module}", widths)
    x = net.flatten(net.adaptive_pool(x, "avgpool"))
    return net.linear(net.dropout(x, "dropout", 0.2), "fc", net.classes)


register(
    Architecture(
        "googlenet", body, "arXiv 1409.4842", "fc", ignored=("aux1.", "aux2."), may_transform_input=True
    )
)
