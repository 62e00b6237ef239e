"""The few groups of layers that several architectures share, with torchvision's names for their parts."""

import itertools
from collections.abc import Iterator
from typing import Any

from bslite.frontends.weights.architectures.net import Net, Size


def conv_norm(net: Net, x: str, conv: str, norm: str, out: int, kernel: Size, **options: Any) -> str:
    """Convolution without bias, then batch norm."""
    return net.norm(net.conv(x, conv, out, kernel, **options), norm)


def conv_norm_act(
    net: Net, x: str, path: str, out: int, kernel: int, activation: str | None = None, **options: Any
) -> str:
    """torchvision's ``Conv2dNormActivation``: ``path.0`` (padded by half its kernel), ``.1``, ``.2``."""
    x = conv_norm(net, x, f"{path}.0", f"{path}.1", out, kernel, padding=kernel // 2, **options)
    return net.add(activation, f"{path}.2", x) if activation else x


def basic_conv(net: Net, x: str, path: str, out: int, kernel: Size, **options: Any) -> str:
    """``BasicConv2d`` of GoogLeNet and Inception: convolution, batch norm with eps 0.001, ReLU."""
    x = net.norm(net.conv(x, f"{path}.conv", out, kernel, **options), f"{path}.bn", eps=0.001)
    return net.relu(x, f"{path}.relu")


def numbered(path: str) -> Iterator[str]:
    """``path.0``, ``path.1``, ...: the names of the layers in a ``Sequential``."""
    return (f"{path}.{index}" for index in itertools.count())
