"""MobileNetV2: Sandler et al., "Inverted Residuals and Linear Bottlenecks", arXiv 1801.04381, table 2."""

from bslite.frontends.weights.architectures.blocks import conv_norm, conv_norm_act, numbered
from bslite.frontends.weights.architectures.net import Architecture, Net, register

#: Per stage: expansion, channels, blocks, stride of the first block.
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def inverted_residual(net: Net, x: str, path: str, expansion: int, out: int, stride: int) -> str:
    """1x1 to more channels, depthwise 3x3, 1x1 to few channels without activation; added to the input."""
    part = numbered(f"{path}.conv")
    wide = net.channels(x) * expansion
    y = x
    if expansion != 1:
        y = conv_norm_act(net, y, next(part), wide, 1, "relu6")
    y = conv_norm_act(net, y, next(part), wide, 3, "relu6", stride=stride, groups=wide)
    y = conv_norm(net, y, next(part), next(part), out, 1)
    if stride == 1 and net.channels(x) == out:
        y = net.add("add", f"{path}.add", x, y)
    return y


def body(net: Net, x: str) -> str:
    """A convolution, seventeen blocks, a wide 1x1 convolution, the classifier."""
    name = numbered("features")
    x = conv_norm_act(net, x, next(name), 32, 3, "relu6", stride=2)
    for expansion, out, depth, stride in STAGES:
        for index in range(depth):
            x = inverted_residual(net, x, next(name), expansion, out, 1 if index else stride)
    x = conv_norm_act(net, x, next(name), 1280, 1, "relu6")
    x = net.flatten(net.adaptive_pool(x, "avgpool"))
    return net.linear(net.dropout(x, "classifier.0", 0.2), "classifier.1", net.classes)


register(Architecture("mobilenet_v2", body, "arXiv 1801.04381", "classifier.1"))
