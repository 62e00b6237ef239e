"""AlexNet: Krizhevsky, "One weird trick for parallelizing convolutional neural networks", arXiv 1404.5997.

torchvision's one-tower form: no local response norm, no grouped convolutions.
"""

from bslite.frontends.weights.architectures.blocks import numbered
from bslite.frontends.weights.architectures.net import Architecture, Net, register


def body(net: Net, x: str) -> str:
    """Five convolutions, three max pools, three fully connected layers."""
    name = numbered("features")
    x = net.relu(net.conv(x, next(name), 64, 11, stride=4, padding=2, bias=True), next(name))
    x = net.max_pool(x, next(name), 3, 2)
    x = net.relu(net.conv(x, next(name), 192, 5, padding=2, bias=True), next(name))
    x = net.max_pool(x, next(name), 3, 2)
    for width in (384, 256, 256):
        x = net.relu(net.conv(x, next(name), width, 3, padding=1, bias=True), next(name))
    x = net.max_pool(x, next(name), 3, 2)
    x = net.flatten(net.adaptive_pool(x, "avgpool", 6))
    name = numbered("classifier")
    for _ in range(2):
        x = net.dropout(x, next(name), 0.5)
        x = net.relu(net.linear(x, next(name), 4096), next(name))
    return net.linear(x, next(name), net.classes)


register(Architecture("alexnet", body, "arXiv 1404.5997", "classifier.6"))
