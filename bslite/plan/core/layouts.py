"""The axis of a value that is innermost in memory: the channels, wherever they are.

Features and tokens have them at the last axis. Values of rank 3 and 5 may have them at axis 1: signals and
volumes that convolutions and pools work on. Values of rank 4 are images, with channels at axis 1, or rows:
heads of an attention, windows of tokens. The ops around a value decide.
"""

from collections.abc import Mapping

from bslite.ops import Kind, Shape
from bslite.plan.core.views import channel_axis
from bslite.spec import ModelSpec

#: Ops on signals and volumes: windows move along the axes after the channels.
WINDOWS = frozenset(
    f"{family}{axes}d"
    for axes in (1, 3)
    for family in (
        "conv", "int_conv", "conv_transpose", "max_pool", "avg_pool", "adaptive_max_pool",
        "adaptive_avg_pool",
    )
) | {"max_pool_places", "pool_grad"}  # fmt: skip
#: Ops that keep the place of every axis, besides the pointwise ones.
SAME_AXES = frozenset(("concat", "pad", "slice", "upsample", "group_norm", "lrn", "dropout"))


#: Ops that work on images, whose channels are axis 1.
IMAGES = frozenset(
    ("conv2d", "int_conv2d", "conv_transpose2d", "max_pool2d", "avg_pool2d", "adaptive_max_pool2d",
     "adaptive_avg_pool2d", "upsample", "resize", "grid_sample", "fold", "unfold", "batch_norm", "group_norm",
     "batch_stats", "batch_sums", "batch_norm_grad", "scale_shift", "max_pool_places",
     "pool_grad", "lrn", "prelu")
)  # fmt: skip
FEW = 4  # channels that are no row where they alone are reduced: lanes of another axis stand side by side


def innermost(rank: int, channels_second: bool) -> int:
    """The axis that kernels vectorise over."""
    if rank in (3, 4, 5):
        return 1 if channels_second else rank - 1
    return channel_axis(rank)


def reduced_channels(rank: int, channels_second: bool) -> int:
    """The axis of the channels where values are reduced: of images axis 1, of all else the last one."""
    return innermost(rank, channels_second) if rank == 4 else channel_axis(rank)


def channels_second(spec: ModelSpec, shapes: Mapping[str, Shape]) -> frozenset[str]:
    """The values of rank 3 to 5 whose channels are axis 1.

    Those that windows move over or that are images, and those joined to them by ops that keep axes in place.
    Found once per model: only ranks have a say in it.
    """
    ranks = tuple(map(len, shapes.values()))
    known: dict[Shape, frozenset[str]] = spec.__dict__.setdefault("_channels_second", {})
    if ranks not in known:
        known[ranks] = _channels_second(spec, shapes)
    return known[ranks]


def _channels_second(spec: ModelSpec, shapes: Mapping[str, Shape]) -> frozenset[str]:
    windows: set[str] = set()
    linked: dict[str, set[str]] = {}
    for node in spec.nodes:
        op = node.declaration.plain
        read = node.inputs[: len(node.inputs) - len(node.given)]
        names = [n for n in (*read, node.name) if len(shapes.get(n, ())) in (3, 4, 5)]
        if op in WINDOWS or op == "upsample":
            windows.update(n for n in names if len(shapes[n]) != 4)
        if op in IMAGES:
            windows.update(n for n in names if len(shapes[n]) == 4)
        if op in SAME_AXES or node.declaration.kind in (Kind.POINTWISE, Kind.CHANNEL):
            rank = len(shapes.get(node.name, ()))
            for name in (n for n in names if len(shapes[n]) == rank and n != node.name):
                linked.setdefault(name, set()).add(node.name)
                linked.setdefault(node.name, set()).add(name)
    return frozenset(_joined(windows, linked))


def _joined(found: set[str], linked: Mapping[str, set[str]]) -> set[str]:
    """The values and all that links join them to."""
    found = set(found)
    waiting = list(found)
    while waiting:
        for name in linked.get(waiting.pop(), ()):
            if name not in found:
                found.add(name)
                waiting.append(name)
    return found
