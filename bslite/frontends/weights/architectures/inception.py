"""Inception v3: Szegedy et al., "Rethinking the Inception Architecture for Computer Vision".

arXiv 1512.00567. The auxiliary classifier trains the network and plays no part in inference.
"""

from bslite.frontends.weights.architectures.blocks import basic_conv
from bslite.frontends.weights.architectures.net import Architecture, Net, Size, register

Step = tuple[str, int, Size]  # part's name, channels, kernel


def chain(net: Net, x: str, path: str, *steps: Step) -> str:
    """Convolutions one after the other, each padded to keep height and width."""
    for part, out, kernel in steps:
        height, width = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        x = basic_conv(net, x, f"{path}.{part}", out, kernel, padding=(height // 2, width // 2))
    return x


def pooled(net: Net, x: str, path: str, out: int) -> str:
    """Mean over 3x3, then a 1x1 convolution."""
    return chain(net, net.avg_pool(x, f"{path}.avg_pool", 3, 1, padding=1), path, ("branch_pool", out, 1))


def module_a(net: Net, x: str, path: str, pool: int) -> str:
    """Figure 5 of the paper, its 5x5 kept beside two 3x3."""
    return net.concat(
        f"{path}.concat",
        chain(net, x, path, ("branch1x1", 64, 1)),
        chain(net, x, path, ("branch5x5_1", 48, 1), ("branch5x5_2", 64, 5)),
        chain(net, x, path, ("branch3x3dbl_1", 64, 1), ("branch3x3dbl_2", 96, 3), ("branch3x3dbl_3", 96, 3)),
        pooled(net, x, path, pool),
    )


def module_b(net: Net, x: str, path: str) -> str:
    """Figure 10: half the height and width."""
    double = chain(net, x, path, ("branch3x3dbl_1", 64, 1), ("branch3x3dbl_2", 96, 3))
    return net.concat(
        f"{path}.concat",
        basic_conv(net, x, f"{path}.branch3x3", 384, 3, stride=2),
        basic_conv(net, double, f"{path}.branch3x3dbl_3", 96, 3, stride=2),
        net.max_pool(x, f"{path}.max_pool", 3, 2),
    )


def module_c(net: Net, x: str, path: str, width: int) -> str:
    """Figure 6: 7x7 windows as 1x7 and 7x1."""
    row, column = (1, 7), (7, 1)
    return net.concat(
        f"{path}.concat",
        chain(net, x, path, ("branch1x1", 192, 1)),
        chain(
            net, x, path, ("branch7x7_1", width, 1), ("branch7x7_2", width, row), ("branch7x7_3", 192, column)
        ),
        chain(
            net,
            x,
            path,
            ("branch7x7dbl_1", width, 1),
            ("branch7x7dbl_2", width, column),
            ("branch7x7dbl_3", width, row),
            ("branch7x7dbl_4", width, column),
            ("branch7x7dbl_5", 192, row),
        ),
        pooled(net, x, path, 192),
    )


def module_d(net: Net, x: str, path: str) -> str:
    """Half the height and width again."""
    three = chain(net, x, path, ("branch3x3_1", 192, 1))
    seven = chain(
        net,
        x,
        path,
        ("branch7x7x3_1", 192, 1),
        ("branch7x7x3_2", 192, (1, 7)),
        ("branch7x7x3_3", 192, (7, 1)),
    )
    return net.concat(
        f"{path}.concat",
        basic_conv(net, three, f"{path}.branch3x3_2", 320, 3, stride=2),
        basic_conv(net, seven, f"{path}.branch7x7x3_4", 192, 3, stride=2),
        net.max_pool(x, f"{path}.max_pool", 3, 2),
    )


def module_e(net: Net, x: str, path: str) -> str:
    """Figure 7: 3x3 windows as 1x3 beside 3x1."""

    def fan(x: str, part: str, first: str, second: str) -> str:
        return net.concat(
            f"{path}.{part}.concat",
            chain(net, x, path, (f"{part}_{first}", 384, (1, 3))),
            chain(net, x, path, (f"{part}_{second}", 384, (3, 1))),
        )

    single = chain(net, x, path, ("branch3x3_1", 384, 1))
    double = chain(net, x, path, ("branch3x3dbl_1", 448, 1), ("branch3x3dbl_2", 384, 3))
    return net.concat(
        f"{path}.concat",
        chain(net, x, path, ("branch1x1", 320, 1)),
        fan(single, "branch3x3", "2a", "2b"),
        fan(double, "branch3x3dbl", "3a", "3b"),
        pooled(net, x, path, 192),
    )


def body(net: Net, x: str) -> str:
    """Table 1 of the paper."""
    x = basic_conv(net, x, "Conv2d_1a_3x3", 32, 3, stride=2)
    x = basic_conv(net, x, "Conv2d_2a_3x3", 32, 3)
    x = basic_conv(net, x, "Conv2d_2b_3x3", 64, 3, padding=1)
    x = net.max_pool(x, "maxpool1", 3, 2)
    x = basic_conv(net, x, "Conv2d_3b_1x1", 80, 1)
    x = basic_conv(net, x, "Conv2d_4a_3x3", 192, 3)
    x = net.max_pool(x, "maxpool2", 3, 2)
    for letter, pool in (("b", 32), ("c", 64), ("d", 64)):
        x = module_a(net, x, f"Mixed_5{letter}", pool)
    x = module_b(net, x, "Mixed_6a")
    for letter, width in (("b", 128), ("c", 160), ("d", 160), ("e", 192)):
        x = module_c(net, x, f"Mixed_6{letter}", width)
    x = module_d(net, x, "Mixed_7a")
    x = module_e(net, x, "Mixed_7b")
    x = module_e(net, x, "Mixed_7c")
    x = net.flatten(net.dropout(net.adaptive_pool(x, "avgpool"), "dropout", 0.5))
    return net.linear(x, "fc", net.classes)


register(
    Architecture(
        "inception_v3",
        body,
        "arXiv 1512.00567",
        "fc",
        image_size=299,
        ignored=("AuxLogits.",),
        may_transform_input=True,
    )
)
