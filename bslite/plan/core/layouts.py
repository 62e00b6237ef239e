"""The axis of a value that is innermost in memory: the channels, wherever they are.

Images ``[N, C, H, W]`` have them at axis 1, features and tokens at the last axis. Values of rank 3 and 5 may
have either: signals and volumes that convolutions and pools work on, or tokens and windows. The ops around a
value decide.
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
)  # fmt: skip
#: Ops that keep the place of every axis, besides the pointwise ones.
SAME_AXES = frozenset(("concat", "pad", "slice", "upsample", "group_norm", "lrn", "dropout"))


def innermost(rank: int, channels_second: bool) -> int:
    """The axis that kernels vectorise over."""
    return 1 if channels_second and rank in (3, 5) else channel_axis(rank)


def channels_second(spec: ModelSpec, shapes: Mapping[str, Shape]) -> frozenset[str]:
    """The values of rank 3 and 5 whose channels are axis 1.

    They are the values that windows move over, and those joined to them by ops that keep axes in place.
    """
    found: set[str] = set()
    linked: dict[str, set[str]] = {}
    for node in spec.nodes:
        names = [n for n in (*node.inputs, node.name) if n in shapes and len(shapes[n]) in (3, 5)]
        if node.op in WINDOWS or (node.op == "upsample" and names):
            found.update(names)
        elif node.op in SAME_AXES or node.declaration.kind in (Kind.POINTWISE, Kind.CHANNEL):
            rank = len(shapes.get(node.name, ()))
            for name in (n for n in names if len(shapes[n]) == rank and n != node.name):
                linked.setdefault(name, set()).add(node.name)
                linked.setdefault(node.name, set()).add(name)
    waiting = list(found)
    while waiting:
        for name in linked.get(waiting.pop(), ()):
            if name not in found:
                found.add(name)
                waiting.append(name)
    return frozenset(found)
