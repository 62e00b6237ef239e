"""EfficientNet-B0: Tan, Le, "Rethinking Model Scaling for Convolutional Neural Networks", arXiv 1905.11946.

Table 1. Its stochastic depth drops whole branches in training and is the identity at inference.
"""

from bslite.frontends.weights.architectures.blocks import conv_norm_act, numbered
from bslite.frontends.weights.architectures.net import Architecture, Net, register

#: Per stage: expansion, kernel, stride of the first block, channels, blocks.
STAGES = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)


def squeeze_excite(net: Net, x: str, path: str, squeeze: int) -> str:
    """Each channel scaled by what the means of all channels say: Hu et al., arXiv 1709.01507."""
    scale = net.adaptive_pool(x, f"{path}.avgpool")
    scale = net.conv(scale, f"{path}.fc1", squeeze, 1, bias=True)
    scale = net.add("silu", f"{path}.activation", scale)
    scale = net.conv(scale, f"{path}.fc2", net.channels(x), 1, bias=True)
    scale = net.add("sigmoid", f"{path}.scale_activation", scale)
    return net.add("mul", f"{path}.mul", scale, x)


def mb_conv(net: Net, x: str, path: str, expansion: int, kernel: int, stride: int, out: int) -> str:
    """An inverted residual (see `mobilenet`) with squeeze and excitation to a quarter of its input."""
    part = numbered(f"{path}.block")
    narrow = net.channels(x)
    wide = narrow * expansion
    y = x
    if expansion != 1:
        y = conv_norm_act(net, y, next(part), wide, 1, "silu")
    y = conv_norm_act(net, y, next(part), wide, kernel, "silu", stride=stride, groups=wide)
    y = squeeze_excite(net, y, next(part), narrow // 4)
    y = conv_norm_act(net, y, next(part), out, 1)
    if stride == 1 and narrow == out:
        y = net.add("add", f"{path}.add", y, x)
    return y


def body(net: Net, x: str) -> str:
    """A convolution, sixteen blocks in seven stages, a wide 1x1 convolution, the classifier."""
    x = conv_norm_act(net, x, "features.0", 32, 3, "silu", stride=2)
    for stage, (expansion, kernel, stride, out, depth) in enumerate(STAGES, 1):
        for index in range(depth):
            path = f"features.{stage}.{index}"
            x = mb_conv(net, x, path, expansion, kernel, 1 if index else stride, out)
    x = conv_norm_act(net, x, "features.8", 4 * net.channels(x), 1, "silu")
    x = net.flatten(net.adaptive_pool(x, "avgpool"))
    return net.linear(net.dropout(x, "classifier.0", 0.2), "classifier.1", net.classes)


register(Architecture("efficientnet_b0", body, "arXiv 1905.11946", "classifier.1"))
